import time

while time.process_time() < 0.6:
    pass
with open(snakemake.output[0], "w") as out:  # noqa: F821
    out.write(str(time.process_time()))

import time

while time.process_time() < 0.6:
    pass
open(snakemake.output[0], "w").write(str(time.process_time()))  # noqa: F821

"""Pure functions on the tables of a run: rates, timelines, lanes, summaries, findings.

The modules here need numpy and pandas (extra ``report``); import them where they are used.
"""

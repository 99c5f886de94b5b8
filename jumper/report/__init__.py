"""Showing a run: terminal tables, HoloViews plots, one offline HTML page, a card for notebooks.

Everything here reads tables; pictures need the extra ``report`` and are imported where they are made.
"""

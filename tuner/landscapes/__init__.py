"""Landscapes: finished searches as files, replayed, plotted and exchanged."""

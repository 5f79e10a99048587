"""Reports: one self-contained HTML page of a run or an experiment, and calls as tables for other programs."""

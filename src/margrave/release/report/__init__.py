"""The report on a release: one self-contained HTML page, by `page.report`."""

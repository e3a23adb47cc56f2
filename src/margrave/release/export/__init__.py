"""A release in the forms that others ask for: CSV files, SDMX-CSV, a draft entry for the registry of deployments."""

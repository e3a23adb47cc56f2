"""The guarantee: budgets, exact noise, selection and the ledger; knows neither linear algebra nor data."""

"""The mechanisms: what is measured, in which order, and what each step is charged."""

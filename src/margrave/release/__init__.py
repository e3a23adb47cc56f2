"""What is published: tables that agree with each other, with their error bars, and the verb that makes them."""

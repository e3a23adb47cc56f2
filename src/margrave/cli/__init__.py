"""The command line: parse, call the library, render. Nothing is computed here."""

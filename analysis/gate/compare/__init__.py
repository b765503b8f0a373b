"""What changed between two sides: pairs, sentences, causes and the page."""

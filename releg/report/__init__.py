"""One page per file, listed in every_page.py. Pages read the numbers in results/ and are written beside them."""

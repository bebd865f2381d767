"""Where traces come from: an old and a new text, and a typist who makes one into the other."""

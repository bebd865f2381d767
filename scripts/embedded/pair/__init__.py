"""How the embedded pair is made: sources, corpus, tokenizer, rows, model, optimiser, training, evaluation."""

"""Where proposals come from: one module per source, one interface (`base`)."""

"""The paper's tables and figures, ours beside theirs: one module per table or figure over shared machinery."""

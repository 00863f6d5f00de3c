"""The ATC'23 packing protocol on the openb trace: simulator, policies, limit."""

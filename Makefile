# Everything lives in dev.py; `make test ARGS="tests/stack -k broker"` passes arguments on.
.DEFAULT_GOAL := help
.PHONY: help demo test bench bench-peers soak lint lock venv
help demo test bench bench-peers soak lint lock venv:
	@python3 dev.py $@ $(ARGS)

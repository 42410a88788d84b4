# Targets of what needs Go alone.

FUZZTIME ?= 30s
STEPS ?= 1000000

.PHONY: unit scenario model fuzz
unit: # the decisions alone, in seconds
	go test -vet=off ./hooks/...

scenario: # the stories without etcd or Kubernetes
	go test -vet=off ./test/simulated/scenario/...

model: # every state of a small world, with the shipped decisions in it: minutes, up to 8 GiB (docs/evidence/model.md)
	go test ./test/simulated/model -count=1 -v -deep -timeout 60m -steps $(STEPS) -agreements 1000
	go test ./etcdops/backup/seed -count=1 -run TestStreamModel -timeout 60m -schedules 20000

fuzz: # every fuzz test for FUZZTIME
	test/tools/fuzz.sh $(FUZZTIME)

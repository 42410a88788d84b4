# Targets of what starts a real etcd or a real Kubernetes on this machine. test/real/parts.sh has the parts.

# The running lab's KUBECONFIG, kubectl and network, for the commands behind it.
IN_LAB := eval "$$(bin/lab env)" &&
# The stories on it. How many are told at once depends on the load (test/real/e2e/room_test.go).
STORIES := FORMAT=$(if $(V),standard-verbose,testname) $(GOTEST) -count=1 -timeout 75m -parallel 1000 -vet=off -tags $(TAGS),e2e
E2E := ./test/real/e2e/

##@ A real Kubernetes on this machine (Linux, root)

.PHONY: install
install: image lab-up ## Metacontroller and this Quorate in the lab; CERT_MANAGER=1, EXPANDABLE=1, ETCD_RELEASES=1 and NODES=3 for more
	bin/lab load $(CURDIR)/bin/quorate.tar
	@if [ -n "$(ETCD_RELEASES)" ]; then bin/lab etcd; fi
	@if [ -n "$(EXPANDABLE)" ]; then bin/lab expandable; fi
	$(IN_LAB) test/tools/install.sh

.PHONY: story
story: export NODES ?= 3
story: export ETCD_RELEASES ?= 1
story: export CERT_MANAGER ?= 1
story: export EXPANDABLE ?= 1
story: s3 install bin/gotestsum ## one story, as RUN=TestMembers/Pause; what it made stays if it fails. BUSY=1 takes both cores meanwhile
	@[ -n '$(RUN)' ] || { echo 'make story RUN=TestMembers/Pause: say which' >&2; exit 2; }
	@$(IN_LAB) $(if $(BUSY),test/tools/busy.sh )env $(STORIES) -run '$(RUN)' $(E2E) -keep -long || { \
	  printf '%s\n' 'To look at it:' '  eval "$$(bin/lab env)"' '  kubectl get etcdcluster,pods -A' \
	  '  make story RUN=... # again' '  make lab-down      # ends it' >&2; exit 1; }

.PHONY: part all-stories
part: ## a part of all stories, as PART=core: test/real/parts.sh lists them, and which commit played each last
	@test/real/parts.sh play $(PART)
all-stories: ## every part, one after the other; writes the table docs/evidence/stories.md
	@test/real/parts.sh all

.PHONY: lab-build lab-up lab-down
lab-build: bin/lab # build Kubernetes and all the rest from source: some minutes, once
	bin/lab build
lab-up: bin/lab # start it; NODES=3 for more nodes
	bin/lab up
lab-down: bin/lab ## end the lab, leaving nothing behind
	bin/lab down

.PHONY: conformance etcd-binaries store-servers s3
conformance: etcd-binaries store-servers bin/gotestsum # the code that talks to etcd against real etcd of every release, and stores
	@$(GOTEST) -vet=off -timeout 40m -tags $(TAGS),releases ./test/real/conformance/...
etcd-binaries: bin/lab # real etcd of every release, once
	@bin/lab build etcd
store-servers: bin/lab # servers that speak S3 and Google's storage, once
	@bin/lab build s3 fake-gcs-server
s3: bin/lab
	@bin/lab build s3

.PHONY: chaos
chaos: export NODES ?= 3
chaos: export ETCD_RELEASES ?= 1
chaos: install bin/gotestsum # faults between Metacontroller, Quorate and etcd; FOR=30m for longer, SEED=7 to repeat a run
	@$(IN_LAB) $(STORIES) -timeout 6h -run '^TestChaos$$' $(E2E) -chaos.for $(or $(FOR),5m) -chaos.seed $(or $(SEED),0)

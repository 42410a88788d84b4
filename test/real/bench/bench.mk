# Targets that measure, and those that need checkouts of other projects.

ETCD_TAGS := -tags $(TAGS),releases

.PHONY: bench bench-snapshots bench-contents bench-streams bench-operators bench-scale bench-fleet records timings
bench: install # what a decision, a call and a cluster cost, as a table (docs/evidence/performance.md)
	@$(IN_LAB) test/real/bench/bench.sh

bench-snapshots: build etcd-binaries # what a snapshot costs beside etcdctl's: 64 MiB and 1 GiB of data
	@for mib in 64 1024; do go test $(ETCD_TAGS) ./test/real/bench -count=1 -timeout 30m -run TestSnapshots -v -snapshot.mib $$mib \
	  -snapshot.quorate $(CURDIR)/bin/quorate-snapshot | grep '^|'; done

bench-contents: etcd-binaries # what it costs to count what fills a database of 1 GiB, beside its trial restore
	@go test $(ETCD_TAGS) ./test/real/bench -count=1 -timeout 30m -run TestContents -v -contents.mib 1024

bench-streams: build etcd-binaries # what a stream of 1,000,000 changes costs, its restore, and mirrors beside etcdctl's
	@go test $(ETCD_TAGS) ./test/real/bench -count=1 -timeout 60m -run 'TestStreamAndRestore|TestMirrors' -v -stream.changes 1000000 -mirror.keys 200000 \
	  -snapshot.quorate $(CURDIR)/bin/quorate-snapshot -stream.etcdbrctl "$(ETCDBRCTL)" | grep '^|'

bench-operators: install bin/helm # other operators beside ours; COZYSTACK and ETCD_IO are checkouts of theirs (docs/evidence/comparison.md)
	@$(IN_LAB) COZYSTACK=$(COZYSTACK) ETCD_IO=$(ETCD_IO) test/real/bench/operators.sh

bench-scale: build # how many clusters one core of Quorate serves, with Metacontroller and etcd stubbed; root, 20 minutes (docs/evidence/scale.md)
	@test/real/bench/scale.sh

bench-fleet: install bin/gotestsum # CLUSTERS=100 real clusters of one member in the lab (docs/evidence/scale.md)
	@$(IN_LAB) QUORATE_FLEET=$(or $(CLUSTERS),100) $(STORIES) -run '^TestFleet$$' $(E2E)

records: # fail for figures of docs/evidence that are of other code than this: what must be measured before a release
	@QUORATE_RECORDS=1 go test ./docs -count=1 -run TestRecords

timings: # how long every target takes, cold and warm, as a table; hours. TARGETS="test check" chooses
	@test/real/bench/timings.sh $(TARGETS)

.PHONY: kamaji karmada recording dashboard
kamaji: install bin/helm bin/gotestsum # control planes of Kamaji's live in an EtcdCluster; KAMAJI is a checkout of its sources
	@$(IN_LAB) KAMAJI=$(KAMAJI) test/real/planes/kamaji.sh && $(IN_LAB) $(STORIES) -run '^TestKamaji$$' $(E2E) -keep -long

karmada: install bin/gotestsum # Karmada's control plane lives in an EtcdCluster; KARMADA is a checkout of its sources
	@$(IN_LAB) KARMADA=$(KARMADA) test/real/planes/karmada.sh && $(IN_LAB) $(STORIES) -run '^TestKarmada$$' $(E2E) -keep -long

recording: install # play create, kill, upgrade and restore in the lab, and write docs/evidence/recording.txt
	@$(IN_LAB) test/real/demo/record.sh

dashboard: install bin/prometheus # draw docs/dashboard.png from a real Prometheus in the lab: six minutes and a build, with npm and chromium
	@$(IN_LAB) test/real/dashboard/dashboard.sh

kamaji karmada bench-fleet dashboard: export NODES ?= 3
kamaji karmada recording dashboard bench bench-operators: export ETCD_RELEASES ?= 1
kamaji karmada: export CERT_MANAGER ?= 1

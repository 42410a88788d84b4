//go:build linux

package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// expandable: a volume grows under its pod, and under a claim whose pod is away; what was written to it is there
// after all of that.
func (s *smoke) expandable(t *testing.T) {
	if err := installExpandable(s.lab, nil); err != nil {
		t.Fatal(err)
	}
	s.startGrower(t)
	if size := s.mebibytes(t); size < 48 || size > 64 {
		t.Errorf("of 64Mi, the pod sees %d MiB", size)
	}
	s.must(t, "", "exec", "grower", "--", "sh", "-c", "echo kept > /data/file")

	before := s.podAndStart(t)
	began := time.Now()
	s.askFor(t, "128Mi")
	s.eventually(t, "128Mi", "get", "persistentvolumeclaim", "grower", "-o", "jsonpath={.status.capacity.storage}")
	t.Logf("grown after %.1f s", time.Since(began).Seconds())
	if size := s.mebibytes(t); size < 112 || size > 128 {
		t.Errorf("of 128Mi, the pod sees %d MiB", size)
	}
	if after := s.podAndStart(t); after != before {
		t.Errorf("growing changed the pod from %s to %s", before, after)
	}

	s.must(t, "", "delete", "pod", "grower")
	s.askFor(t, "192Mi")
	s.startGrower(t)
	s.grownAndKept(t)
}

func (s *smoke) startGrower(t *testing.T) {
	t.Helper()
	began := time.Now()
	// Not apply: that would ask for the first size again.
	if _, err := s.try("", "get", "persistentvolumeclaim", "grower"); err != nil {
		s.must(t, s.file(t, "expandable-claim.yaml"), "create", "-f", "-")
	}
	s.must(t, s.file(t, "expandable-pod.yaml"), "create", "-f", "-")
	s.must(t, "", "wait", "--for=condition=Ready", "pod/grower", "--timeout=60s")
	t.Logf("a pod with an expandable volume is Ready after %.1f s", time.Since(began).Seconds())
}

func (s *smoke) askFor(t *testing.T, size string) {
	t.Helper()
	s.must(t, "", "patch", "persistentvolumeclaim", "grower", "-p", `{"spec":{"resources":{"requests":{"storage":"`+
		size+`"}}}}`)
}

// mebibytes is what df shows in the pod: the file system's size, less its own log.
func (s *smoke) mebibytes(t *testing.T) int {
	t.Helper()
	output := s.must(t, "", "exec", "grower", "--", "df", "-P", "-m", "/data")
	fields := strings.Fields(output[strings.LastIndexByte(output, '\n')+1:])
	if len(fields) < 2 {
		t.Fatalf("df prints %q", output)
	}
	size, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatalf("df prints %q", output)
	}
	return size
}

func (s *smoke) podAndStart(t *testing.T) string {
	t.Helper()
	return s.must(t, "", "get", "pod", "grower", "-o", "jsonpath={.metadata.uid} "+
		"{.status.containerStatuses[0].containerID}")
}

// grownAndKept is asked again after nodes lost their power.
func (s *smoke) grownAndKept(t *testing.T) {
	t.Helper()
	s.eventually(t, "192Mi", "get", "persistentvolumeclaim", "grower", "-o", "jsonpath={.status.capacity.storage}")
	s.eventually(t, "kept", "exec", "grower", "--", "cat", "/data/file")
	if size := s.mebibytes(t); size < 176 || size > 192 {
		t.Errorf("of 192Mi, the pod sees %d MiB", size)
	}
}

// expandableLeft are the volumes on a node's disk.
func (s *smoke) expandableLeft(n node) []string {
	left, _ := filepath.Glob(n.disk("/var/lib/kubelet/plugins/"+expandableDriver) + "/volumes/*")
	return left
}

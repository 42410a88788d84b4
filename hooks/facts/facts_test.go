package facts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// TestWhichAnswersAreCopied: to the peer Service, the latest 32.
func TestWhichAnswersAreCopied(t *testing.T) {
	answers := map[string]int{}
	for n := 1; n <= 40; n++ {
		answers[fmt.Sprint("id.", n, ":x")] = n
	}
	given := ReadAnswered(FormatAnswered(answers))
	assert.Len(t, given, 32)
	assert.Zero(t, given["id.8:x"])
	assert.Equal(t, 9, given["id.9:x"])
	assert.Equal(t, "id.39:x", LastAnswer(given, 40))
	assert.Empty(t, LastAnswer(nil, 40))
}

// TestHowAnEpochIsFilledOnceMore: what a person is told to do works where it is told.
func TestHowAnEpochIsFilledOnceMore(t *testing.T) {
	for want, e := range map[string]Epoch{
		"create another EtcdOperation to restore again": {N: 3, Bootstrap: record.Bootstrap{After: 2,
			Origin: record.Origin{Restore: "b"}, Answered: map[string]int{"a": 2, "b": 3}}},
		"choose another way by an EtcdOperation of type Recover": {N: 3, Bootstrap: record.Bootstrap{After: 2,
			Origin: record.Origin{Restore: "a"}, Answered: map[string]int{"a": 2}}},
		"delete one of their pods to fill all of them again": {N: 2, Bootstrap: record.Bootstrap{After: 1,
			Origin: record.Origin{Member: "demo-0"}}},
		"delete the EtcdCluster and create it again": {N: 1},
	} {
		assert.Equal(t, want, (&Facts{Epoch: &e}).OtherwiseFilled())
	}
}

func TestTheWayFromOneVersionToAnother(t *testing.T) {
	for _, c := range []struct{ from, to, way string }{
		{"3.6.16", "3.6.16", ""},
		{"3.6.16", "3.6.17", "3.6.17"},
		{"3.6.17", "3.6.4", "3.6.4"},
		{"3.5.35", "3.6.16", "3.6.16"},
		{"3.5.26", "3.6.4", "3.6.4"},
		{"3.5.35", "3.7.3", "3.6.16 3.7.3"},
		{"3.6.10", "3.7.0", "3.6.16 3.7.0"},
		{"3.6.11", "3.7.0", "3.7.0"},
		{"3.7.3", "3.6.16", "3.6.16"},
		{"3.7.3", "3.6.5", "3.6.16 3.6.5"},
		{"3.7.3", "3.5.35", "3.6.16 3.5.35"},
		{"3.6.16", "3.5.26", "3.5.26"},
	} {
		from, err := defaults.ParseRelease(c.from)
		require.NoError(t, err)
		to, err := defaults.ParseRelease(c.to)
		require.NoError(t, err)
		var hops []string
		for _, r := range UpgradePath(from, to) {
			hops = append(hops, r.String())
		}
		assert.Equal(t, c.way, strings.Join(hops, " "), "%s to %s", c.from, c.to)
	}
}

func TestPausesBetweenLearners(t *testing.T) {
	for failures, want := range map[int32]time.Duration{0: 10 * time.Second, 1: 10 * time.Second, 2: 20 * time.Second,
		9: 2560 * time.Second, 10: time.Hour, 1 << 30: time.Hour} {
		assert.Equal(t, want, PauseAfter(failures), failures)
	}
}

// TestAnInitContainerThatEnds: it is named, and so is what killed it.
func TestAnInitContainerThatEnds(t *testing.T) {
	killed := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	pod := &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
		{Name: objects.ContainerPrepare, State: corev1.ContainerState{Terminated: killed}}}}}
	assert.Equal(t, "exit 137, OOMKilled of its init container prepare", WordsForEnd(pod, killed))
	assert.Equal(t, "exit 1", WordsForEnd(pod, &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}))
	assert.Zero(t, RunningSince(pod), "its etcd has not run")
}

// TestACrashLoop: it lasts while etcd runs for a moment, and is over when it outlives its last run.
func TestACrashLoop(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for _, c := range []struct {
		name        string
		lived, runs time.Duration // runs: 0 for not now
		restarts    int32
		loops       bool
	}{
		{"it ends within the second", 0, 0, 4, true},
		{"it is just trying again", 0, 3 * time.Second, 4, true},
		{"it loads for minutes, and is killed", 3 * time.Minute, 2 * time.Minute, 4, true},
		{"it has outlived its last run", 0, 2 * time.Minute, 4, false},
		{"it has ended once", 0, 3 * time.Second, 1, false},
		{"it served before", time.Hour, 3 * time.Second, 4, false},
	} {
		etcd := corev1.ContainerStatus{Name: objects.ContainerEtcd, RestartCount: c.restarts}
		etcd.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1,
			StartedAt: ago(time.Hour + c.lived), FinishedAt: ago(time.Hour)}
		if c.runs > 0 {
			etcd.State.Running = &corev1.ContainerStateRunning{StartedAt: ago(c.runs)}
		}
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{etcd}}}
		assert.Equal(t, c.loops, triesAgain(pod, now), c.name)
	}
}

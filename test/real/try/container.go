package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

// container is one of a pod's, over all of its runs.
type container struct {
	spec    *corev1.Container
	image   string // that it was started from
	process *process
	// taken: the end of the process has been noted.
	taken     bool
	exchanged bool
	done      bool // an init container that has ended well
	ready     atomic.Bool
	ports     map[int]int

	id              string
	starts          int
	last            *corev1.ContainerStateTerminated
	reason, message string
	failures        int
	retry           time.Time
}

// containers of all pods that were ever started, for their IDs.
var containers atomic.Int64

func (r *podRun) container(spec *corev1.Container) *container {
	c := r.containers[spec.Name]
	if c == nil {
		c = &container{taken: true, reason: kubelet.Initializing}
		r.containers[spec.Name] = c
	}
	c.spec = spec
	return c
}

func (c *container) wait(reason, message string) { c.reason, c.message = reason, message }

func (c *container) begun(p *process) {
	c.process, c.image, c.taken, c.exchanged = p, c.spec.Image, false, false
	c.id = fmt.Sprintf("try://%d", containers.Add(1))
	c.starts++
}

// ended notes the end of the process once, and reports whether the container may be started now. It is started again
// after one second, and after twice that with each failure, up to ten: the kubelet's own times are ten times as long.
func (c *container) ended() bool {
	if !c.taken {
		c.taken = true
		c.ready.Store(false)
		code := c.process.code()
		c.last = &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", StartedAt: seconds(c.process.began),
			FinishedAt: seconds(time.Now()), ContainerID: c.id}
		if code == 0 {
			c.last.Reason, c.done = "Completed", true
		}
		if time.Since(c.process.began) > 10*time.Second || c.exchanged {
			c.failures = 0
		}
		c.retry = time.Now()
		if !c.exchanged {
			c.retry = time.Now().Add(min(time.Second<<c.failures, 10*time.Second))
			c.failures = min(c.failures+1, 4)
		}
		c.wait(kubelet.BacksOff, fmt.Sprintf("it has ended with %d, and is started again", code))
	}
	return !time.Now().Before(c.retry)
}

func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// status as the kubelet reports it.
func (c *container) status(lacks string) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image, ContainerID: c.id,
		RestartCount: int32(max(0, c.starts-1)), Ready: c.done}
	switch {
	case c.process.runs():
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: seconds(c.process.began)}
		s.Ready, s.Image = c.ready.Load(), c.image
		s.LastTerminationState.Terminated = c.last
	case c.done:
		s.State.Terminated = c.last
	default:
		s.State = kubelet.Waits(c.reason, c.message)
		s.LastTerminationState.Terminated = c.last
		if lacks != "" {
			s.State.Waiting.Message = "waits for the Secret " + lacks
		}
	}
	return s
}

// probe asks whether the container is ready, as its probe says, for as long as the process runs.
func (c *container) probe(p *process, probe *corev1.Probe, port int, poke func()) {
	if probe == nil || probe.HTTPGet == nil {
		c.ready.Store(true)
		return
	}
	client := &http.Client{Timeout: time.Duration(probe.TimeoutSeconds) * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	url := fmt.Sprintf("http://127.0.0.1:%d%s", port, probe.HTTPGet.Path)
	failed := int32(0)
	// Until the first success it asks more often, so that people wait less.
	for every := 200 * time.Millisecond; p.runs(); {
		ok := answers(client, url)
		if failed++; ok {
			failed, every = 0, time.Duration(probe.PeriodSeconds)*time.Second
		}
		if was := c.ready.Load(); ok != was && (ok || failed >= probe.FailureThreshold) && p.runs() {
			c.ready.Store(ok)
			poke()
		}
		select {
		case <-p.ended:
		case <-time.After(every):
		}
	}
}

func answers(client *http.Client, url string) bool {
	r, err := client.Get(url)
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

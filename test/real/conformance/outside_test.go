//go:build unix

package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestClientURLs: what spec.memberService takes for granted. A member publishes its client URLs at each start, under
// the ID that it has; etcd sorts them, so that no order can be told; and a client that takes its endpoints from the
// list works while some of them lead nowhere.
func TestClientURLs(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3)
		m := c.Members[1]
		outside := []string{"http://demo-1.etcd.example.com:31234", "http://0.etcd.example.com:31234"}
		before := listed(t, c.Members[0])
		restartWith := func(urls ...string) {
			m.Stop()
			flag := "--advertise-client-urls=" + m.ClientURL
			for _, u := range urls {
				flag += "," + u
			}
			m.Become(version, flag)
			m.Restart()
			c.WaitServing(c.Members...)
		}
		published := func(want ...string) {
			slices.Sort(want)
			etcdproc.Eventually(t, "the list has the member's URLs", func(context.Context) error {
				has := listed(t, c.Members[0])[m.Name]
				return while(!slices.Equal(has.urls, want), "%v", has.urls)
			})
		}
		chapter(t, "a member that starts with another client URL publishes it, and stays the same member",
			func(t *testing.T) {
				restartWith(outside[0])
				published(m.ClientURL, outside[0])
				assert.Equal(t, before[m.Name].id, listed(t, c.Members[0])[m.Name].id)
			})
		chapter(t, "URLs are sorted, whatever the order in the flag", func(t *testing.T) {
			restartWith(outside...)
			published(append(outside, m.ClientURL)...)
		})
		chapter(t, "a client that syncs has all of them, and works beside those that lead nowhere", func(t *testing.T) {
			client := c.Members[0].Client()
			require.NoError(t, client.Sync(t.Context()))
			assert.ElementsMatch(t, append(outside, c.Members[0].ClientURL, m.ClientURL, c.Members[2].ClientURL),
				client.Endpoints())
			for i := range 20 {
				etcdproc.Eventually(t, "a write is taken", func(ctx context.Context) error {
					_, err := client.Put(ctx, fmt.Sprintf("key-%d", i), "x")
					return err
				})
			}
		})
		chapter(t, "they are gone with its next start", func(t *testing.T) {
			restartWith()
			published(m.ClientURL)
		})
	})
}

type entry struct {
	id   uint64
	urls []string
}

// listed is the member list, by name, as this member tells it.
func listed(t *testing.T, m *etcdproc.Member) map[string]entry {
	t.Helper()
	client := m.Client()
	all := map[string]entry{}
	etcdproc.Eventually(t, "the members are listed", func(ctx context.Context) error {
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, one := range list.Members {
			all[one.GetName()] = entry{one.GetID(), one.GetClientURLs()}
		}
		return nil
	})
	return all
}

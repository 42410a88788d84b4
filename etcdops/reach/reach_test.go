package reach

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestWhatANameLeadsToIsLookedAt: a name that is allowed and leads to an address that never is, one of a Service of
// another namespace, and an address outside of the list, are not connected to.
func TestWhatANameLeadsToIsLookedAt(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	at := func(host string) string { return netip.AddrPortFrom(netip.MustParseAddr(host), port).String() }
	w := Within{Namespace: "shop", Allowed: &objects.AllowedEndpoints{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}, Hosts: []string{"rebound.example"}}}
	for _, address := range []string{at("127.0.0.1"), at("10.1.3.1"), at("169.254.169.254"), "etcd.bank.svc:2379",
		"other.example:2379", "nonsense"} {
		_, err := w.Dial(t.Context(), address)
		require.ErrorIs(t, err, ErrForbidden, address)
		_, err = Within{}.Dial(t.Context(), address)
		require.ErrorIs(t, err, ErrForbidden, address)
	}
	_, control, err := w.To("rebound.example:2379")
	require.NoError(t, err)
	require.ErrorIs(t, control(t.Context(), "tcp", at("127.0.0.1"), nil), ErrForbidden)
	require.NoError(t, control(t.Context(), "tcp", at("192.0.2.1"), nil))
	_, control, err = w.To("etcd.shop.svc:2379")
	require.NoError(t, err)
	require.ErrorIs(t, control(t.Context(), "tcp", at("192.0.2.1"), nil), ErrForbidden, "the address counts")
	require.NoError(t, control(t.Context(), "tcp", at("10.1.2.3"), nil))
}

package membership

import "errors"

// Why a member without data does not begin. (bootstrapNewClusterNoWAL and bootstrapExistingClusterNoWAL in
// etcdserver/bootstrap.go.)
var (
	// ErrBootstrapped: a peer says that the member has started before (isMemberBootstrapped in
	// etcdserver/cluster_util.go).
	ErrBootstrapped = errors.New("has already been bootstrapped")
	// ErrNoPeer: none that knows the member answers (GetClusterFromRemotePeers in the same file).
	ErrNoPeer = errors.New("cannot fetch cluster info from peer urls")
	// ErrToldOthers: its --initial-cluster is not the member list (ValidateClusterAndAssignIDs in
	// etcdserver/api/membership/cluster.go).
	ErrToldOthers = errors.New("member count is unequal or peer URLs mismatch")
)

// Bootstrap is whether member n may begin with --initial-cluster-state=new in a cluster that others have made of the
// same list and token. The peers are those that answer it.
func (c Cluster) Bootstrap(n int, peers Set) error {
	if c.Started.Has(n) && c.others(n, peers) {
		return ErrBootstrapped
	}
	return nil
}

// Join is whether member n may begin with --initial-cluster-state=existing that was told of these members.
func (c Cluster) Join(n int, told, peers Set) error {
	switch {
	case !c.Members().Has(n), !c.others(n, peers):
		return ErrNoPeer
	case told != c.Members():
		return ErrToldOthers
	}
	return nil
}

func (c Cluster) others(n int, peers Set) bool { return peers&c.Members().Without(n) != 0 }

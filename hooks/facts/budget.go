package facts

import "fmt"

// MinAvailable is how many pods the budget protects. One that shows another etcd than ours counts in none of them.
func (f *Facts) MinAvailable() int { return f.minAvailable() + f.MismatchedPods() }

// BudgetLags says that the observed budget protects fewer pods than it must once the learner votes; empty when it does
// not. Without a budget nothing is protected, and one more voter makes that no worse.
func (f *Facts) BudgetLags() string {
	old := f.Children.Budgets[f.Cluster.Name]
	least := f.MinAvailable()
	if old == nil || old.Spec.MinAvailable == nil || old.Spec.MinAvailable.IntValue() >= least {
		return ""
	}
	return fmt.Sprintf("waiting until the PodDisruptionBudget %s protects %d pods", old.Name, least)
}

# How Sphinx makes a site of README.md, CHANGELOG.md and docs, which are as GitHub shows them. `make site` calls it.
import re
from pathlib import Path

project = html_title = "Quorate"
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "docs/**.md"]
extensions = ["myst_parser"]
myst_heading_anchors = 6
suppress_warnings = ["misc.highlighting_failure"]  # code in languages that Pygments does not know
html_theme = "furo"
html_favicon = "../../../docs/icon.svg"
html_copy_source = False
html_search_scorer = str(Path(__file__).parent / "scorer.js")

sidebar = {
    "Start": ["docs/README", "docs/tutorial", "docs/troubleshooting", "docs/alerts"],
    "How-to": [],  # in the order of docs/README.md
    "Reference": ["docs/reference/*", "CHANGELOG"],
    "Explanation": ["docs/explanation/*"],
    "Evidence": ["docs/evidence/README", "docs/evidence/*"],
    "Decisions": ["docs/decisions/*"],
}
# Words that readers type into the search, for pages that have others.
words = {
    "docs/evidence/comparison": "alternatives, etcd operators",
    "docs/explanation/security": "RBAC, threat model, permissions",
    "docs/how-to/back-up": "backup, snapshot schedule, PITR, RPO",
    "docs/how-to/certificates": "TLS, mTLS, certificate rotation, cert-manager",
    "docs/how-to/change": "rolling restart, maintenance window, defragmentation, drain",
    "docs/how-to/clouds": "AWS, Amazon, GCP, Google Cloud, Azure, IAM role, IRSA, workload identity, service account, StorageClass",
    "docs/how-to/connect": "client, endpoints, etcdctl, connection string",
    "docs/how-to/control-planes": "hosted control planes, Kamaji, vCluster, k3s, Cluster API",
    "docs/how-to/create": "getting started, EtcdCluster, affinity, PriorityClass",
    "docs/how-to/expose": "ingress, LoadBalancer, NodePort, external access",
    "docs/how-to/gitops": "Argo CD, Flux, health check",
    "docs/how-to/install": "helm chart, air gap, offline, OLM",
    "docs/how-to/kubernetes-restored": "etcd of the management cluster, disaster recovery",
    "docs/how-to/many-tenants": "multi-tenancy, multitenancy, isolation",
    "docs/how-to/migrate": "migration, import, Bitnami",
    "docs/how-to/mirror": "replication, disaster recovery, DR, multi-region, failover",
    "docs/how-to/monitor": "ServiceMonitor, PodMonitor, Grafana dashboard, Prometheus, alerting",
    "docs/how-to/network": "firewall, ports, NetworkPolicy, service mesh, Istio, Linkerd, Cilium",
    "docs/how-to/production": "best practices, checklist, hardening",
    "docs/how-to/recover-quorum": "disaster recovery, quorum loss, force-new-cluster",
    "docs/how-to/restore": "disaster recovery, point-in-time recovery, PITR, RTO",
    "docs/how-to/restore-drill": "disaster recovery, test of backups",
    "docs/how-to/size": "sizing, capacity, quota, requirements, IOPS",
    "docs/how-to/upgrade": "etcd version, rollback, downgrade",
    "docs/how-to/users-and-roles": "authentication, authorization, RBAC, password",
    "docs/how-to/velero": "disaster recovery, namespace backup",
    "docs/how-to/volumes": "PVC, resize, storage migration",
    "docs/reference/versions": "compatibility matrix, supported versions",
    "docs/troubleshooting": "debug, errors, FAQ",
}
root = Path(__file__).parents[3]
sidebar["How-to"] = [f"docs/{page}" for page in re.findall(r"\((how-to/[a-z-]+)\.md\)", (root / "docs/README.md").read_text())]


def at_github(page, link):
    """A link to what is no page leads to the repository. One that leads nowhere stays, and Sphinx refuses it."""
    target = (root / page).parent.joinpath(link[1]).resolve()
    path = str(target.relative_to(root))
    if path in include_patterns or path.startswith("docs/") and target.is_file() or not target.exists():
        return link[0]
    kind = "tree" if target.is_dir() else "blob"
    return f"](https://github.com/quorate-dev/quorate/{kind}/main/{path}{link[2]})"


def read(app, page, text):
    text[0] = re.sub(r"\]\((?!\w+:)([^)#\s]+)((?:#[^)\s]*)?)\)", lambda link: at_github(page, link), text[0])
    if page in words:
        title, rest = text[0].split("\n", 1)
        index = "\n".join(f"```{{index}} single: {word}\n```" for word in words[page].split(", "))
        text[0] = f"{title}\n\n{index}\n{rest}"
    if page == root_doc:
        for caption, pages in sidebar.items():
            text[0] += "\n".join(["", "```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", *pages, "```", ""])


def setup(app):
    if missing := [page for page in words if not (root / f"{page}.md").exists()]:
        raise ValueError(f"words of pages that do not exist: {missing}")
    app.connect("source-read", read)

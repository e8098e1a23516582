//! The public hosts in a Spec, and their names in a test.

use std::collections::BTreeMap;

use serde_json::Value;

use konverge_base::model::{
    Digest,
    spec::{Spec, object_key},
};

/// The groups whose objects publish the hosts under [`KEYS`].
const GROUPS: [&str; 5] = [
    "networking.k8s.io",
    "gateway.networking.k8s.io",
    "networking.istio.io",
    "route.openshift.io",
    "cert-manager.io",
];

/// The keys under which objects have hosts.
const KEYS: [&str; 6] = ["host", "hosts", "hostname", "hostnames", "dnsNames", "commonName"];

/// The annotation with hosts for external-dns, separated by commas.
const EXTERNAL_DNS: &str = "external-dns.alpha.kubernetes.io/hostname";

/// The hosts of a Spec with their names in the test, the longest first.
pub(super) struct Hosts(Vec<(String, String)>);

impl Hosts {
    pub(super) fn find(spec: &Spec, run: &str) -> Self {
        let mut found = Vec::new();
        for resource in &spec.resources {
            if GROUPS.contains(&object_key(&resource.attributes).group)
                && let Some(spec) = resource.attributes.get("spec")
            {
                find_hosts(spec, &mut found);
            }
            let annotations = resource
                .attributes
                .get("metadata")
                .and_then(|metadata| metadata.get("annotations"));
            let published = annotations.and_then(|annotations| annotations.get(EXTERNAL_DNS)?.as_str());
            found.extend(
                published
                    .into_iter()
                    .flat_map(|hosts| hosts.split(','))
                    .map(str::trim),
            );
        }
        let mut hosts: Vec<(String, String)> = found
            .into_iter()
            .filter(|host| is_public(host))
            .map(|host| (host.to_owned(), moved(host, run)))
            .collect();
        hosts.sort_by(|a, b| (b.0.len(), &a.0).cmp(&(a.0.len(), &b.0)));
        hosts.dedup();
        Self(hosts)
    }

    /// Renames the hosts in a text, and the namespaces in DNS names of services (`web.shop.svc`).
    pub(super) fn rename(&self, text: &str, namespaces: &BTreeMap<String, String>) -> String {
        let mut renamed = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = None;
        'text: while let Some(next) = rest.chars().next() {
            let starts = before.is_none_or(|c| !is_of_name(c));
            if starts {
                // The longest host comes first, so that a part of a longer host is never renamed.
                for (host, name) in &self.0 {
                    if let Some(behind) = rest.strip_prefix(host.as_str())
                        && ends(behind)
                    {
                        renamed.push_str(name);
                        before = host.chars().next_back();
                        rest = behind;
                        continue 'text;
                    }
                }
            }
            if next == '.' {
                for (namespace, name) in namespaces {
                    if let Some(behind) = rest[1..].strip_prefix(namespace.as_str())
                        && let Some(behind) = behind.strip_prefix(".svc")
                        && (ends(behind) || behind.starts_with('.'))
                    {
                        renamed.push_str(&format!(".{name}.svc"));
                        before = Some('c');
                        rest = behind;
                        continue 'text;
                    }
                }
            }
            renamed.push(next);
            before = Some(next);
            rest = &rest[next.len_utf8()..];
        }
        renamed
    }
}

fn find_hosts<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| find_hosts(item, found)),
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(host) if KEYS.contains(&key.as_str()) => found.push(host),
                    Value::Array(hosts) if KEYS.contains(&key.as_str()) => {
                        found.extend(hosts.iter().filter_map(Value::as_str));
                        find_hosts(value, found);
                    }
                    _ => find_hosts(value, found),
                }
            }
        }
        _ => {}
    }
}

/// Returns true for a public DNS name; false for an IP address and for a name inside the cluster.
fn is_public(host: &str) -> bool {
    let inside = host.ends_with(".svc") || host.ends_with(".cluster.local");
    host.contains('.') && !inside && host.parse::<std::net::IpAddr>().is_err()
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '-' || c == '.' || c == '*'
}

/// Returns true if a name ends before this text, so that the name is not a part of a longer one.
fn ends(behind: &str) -> bool {
    behind
        .chars()
        .next()
        .is_none_or(|c| !c.is_alphanumeric() && c != '-')
        && !behind
            .strip_prefix('.')
            .is_some_and(|behind| behind.starts_with(char::is_alphanumeric))
}

/// Returns the name of a host in the test: `shop.example.com` becomes `shop-RUN.example.com`, and `*.example.com`
/// becomes `*.RUN.example.com`.
fn moved(host: &str, run: &str) -> String {
    match host.split_once('.') {
        Some(("*", domain)) => format!("*.{run}.{domain}"),
        Some((first, domain)) => format!("{}.{domain}", suffixed(first, run)),
        None => suffixed(host, run),
    }
}

/// The maximum length of the name of a namespace, of a DNS label, and of most objects.
const LONGEST: usize = 63;

/// Appends the run to a name, within 63 characters. Different names stay different.
pub(super) fn suffixed(name: &str, run: &str) -> String {
    let whole = format!("{name}-{run}");
    if whole.len() <= LONGEST {
        return whole;
    }
    // The digest keeps shortened names different.
    let digest = Digest::of_bytes(name.as_bytes()).to_string();
    let end = format!("-{}-{run}", &digest[..8]);
    let kept: String = name.chars().take(LONGEST - end.len()).collect();
    format!("{}{end}", kept.trim_end_matches(['-', '.']))
}

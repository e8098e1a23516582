//! The differences in permissions between two configurations: the effect of a merge, with the stacks that it concerns.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};

use super::{ClusterChoice, Config, effective::StackRules};
use konverge_base::model::{StackId, permission_changes::PowerChange, stack::Stack};

/// A stack before and after a merge. Either may be absent.
#[derive(Debug, Clone, Copy, Default)]
pub struct StackSides<'a> {
    /// The stack before the merge.
    pub before: Option<&'a Stack>,
    /// The stack after the merge.
    pub after: Option<&'a Stack>,
}

impl<'a> StackSides<'a> {
    /// Returns the stack after the merge, or else the one before it.
    fn newest(&self) -> Option<&'a Stack> {
        self.after.or(self.before)
    }
}

impl Config {
    /// Returns the differences between this configuration and `after`, key by key. Rules for stacks are compared by
    /// their effect on each of `stacks`.
    pub fn permission_changes(&self, after: &Config, stacks: &[StackSides<'_>]) -> Vec<PowerChange> {
        let mut changes = Vec::new();
        let (from, to) = (self.powers(), after.powers());
        visit_leaves("", &from, &to, &mut |key, from, to| {
            let of_cluster = key.strip_prefix("clusters.");
            changes.push(PowerChange {
                stacks: of_cluster.map(|rest| self.stacks_of_cluster(after, rest, stacks)),
                key,
                from: from.map(display),
                to: to.map(display),
            });
        });
        changes.extend(self.by_stack(after, stacks));
        changes.sort();
        changes
    }

    /// Returns every key that grants permissions for all stacks, with its value.
    fn powers(&self) -> Value {
        let mut keys = without_keys(self, &["version", "stacks", "checks"]);
        // The core and the KCL settings always come from the revision itself, so the preview already shows their
        // effect.
        if let Some(Value::Object(kcl)) = keys.get_mut("kcl") {
            kcl.remove("version");
            kcl.remove("settings");
        }
        keys
    }

    /// Returns the stacks that use a cluster in one of the two configurations. `key` begins with the name of the
    /// cluster.
    fn stacks_of_cluster(&self, after: &Config, key: &str, stacks: &[StackSides<'_>]) -> Vec<StackId> {
        let is_it = |choice: ClusterChoice| match choice {
            ClusterChoice::Named(name) | ClusterChoice::Unknown(name) => {
                key == name.as_str()
                    || key
                        .strip_prefix(name.as_str())
                        .is_some_and(|rest| rest.starts_with('.'))
            }
            ClusterChoice::Unconfigured | ClusterChoice::Ambiguous => false,
        };
        let (old_rules, new_rules) = (self.rules(), after.rules());
        let is_reached = |sides: &&StackSides<'_>| {
            let [before, after] = [sides.before, sides.after];
            before.is_some_and(|stack| is_it(old_rules.cluster_of(stack)))
                || after.is_some_and(|stack| is_it(new_rules.cluster_of(stack)))
        };
        let ids = stacks.iter().filter(is_reached);
        let ids = ids.filter_map(StackSides::newest).map(|stack| stack.id.clone());
        ids.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the changes by rules for stacks: for each key with its two values, the stacks for which it changes.
    fn by_stack(&self, after: &Config, stacks: &[StackSides<'_>]) -> Vec<PowerChange> {
        let (old_rules, new_rules) = (self.rules(), after.rules());
        let mut found: BTreeMap<(String, Option<String>, Option<String>), BTreeSet<StackId>> =
            BTreeMap::new();
        let same_rules = self.stacks == after.stacks && self.clusters == after.clusters;
        for sides in stacks {
            let Some(stack) = sides.newest() else { continue };
            let (old, new) = (sides.before, sides.after);
            let named = |stack: Option<&Stack>| stack.and_then(|stack| stack.cluster.clone());
            let folder = |stack: Option<&Stack>| stack.map(|stack| stack.folder.clone());
            // A stack that moved to another folder may get another login, even if the rules are equal.
            let stays = old.is_none() || new.is_none() || folder(old) == folder(new);
            if same_rules && stays && named(old) == named(new) {
                continue;
            }
            // For a removed stack the rules are still compared: they decide who may delete it.
            let mut from = effective(&old_rules.for_stack(old.unwrap_or(stack)));
            let mut to = effective(&new_rules.for_stack(new.unwrap_or(stack)));
            from["cluster"] = cluster(&old_rules, old);
            to["cluster"] = cluster(&new_rules, new);
            visit_leaves("", &from, &to, &mut |key, from, to| {
                let both = old.is_some() && new.is_some();
                // A stack that is added or removed has its own row in the table of stacks.
                if key != "cluster" || both {
                    let row = (format!("stacks[].{key}"), from.map(display), to.map(display));
                    found.entry(row).or_default().insert(stack.id.clone());
                }
            });
        }
        let rows = found.into_iter().map(|((key, from, to), stacks)| PowerChange {
            key,
            from,
            to,
            stacks: Some(stacks.into_iter().collect()),
        });
        rows.collect()
    }
}

/// Returns the effective settings of a stack as JSON. The workspace belongs to the Spec, and grants nothing.
fn effective(rules: &super::EffectiveStack) -> Value {
    without_keys(rules, &["cluster", "workspace"])
}

fn without_keys(settings: &impl Serialize, keys: &[&str]) -> Value {
    let mut settings = serde_json::to_value(settings).unwrap_or_default();
    if let Some(map) = settings.as_object_mut() {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
    settings
}

fn cluster(rules: &StackRules<'_>, stack: Option<&Stack>) -> Value {
    match stack.map(|stack| rules.cluster_of(stack)) {
        Some(ClusterChoice::Named(name) | ClusterChoice::Unknown(name)) => Value::String(name.to_string()),
        Some(ClusterChoice::Unconfigured | ClusterChoice::Ambiguous) | None => Value::Null,
    }
}

/// Calls `each` for every key whose value differs. Null, false, an empty list and an empty object count as not set.
fn visit_leaves(
    at: &str,
    from: &Value,
    to: &Value,
    each: &mut impl FnMut(String, Option<&Value>, Option<&Value>),
) {
    if from == to {
        return;
    }
    let empty = Map::new();
    let object = |value: &Value| value.is_object() || is_unset(value);
    if object(from) && object(to) && !(is_unset(from) && is_unset(to)) {
        let (from, to) = (
            from.as_object().unwrap_or(&empty),
            to.as_object().unwrap_or(&empty),
        );
        let keys: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
        for key in keys {
            let path = match at {
                "" => key.clone(),
                at => format!("{at}.{key}"),
            };
            let value = |side: &Map<String, Value>| side.get(key).cloned().unwrap_or_default();
            visit_leaves(&path, &value(from), &value(to), each);
        }
        return;
    }
    let set = |value: &Value| !is_unset(value);
    each(
        at.to_owned(),
        Some(from).filter(|value| set(value)),
        Some(to).filter(|value| set(value)),
    );
}

fn is_unset(value: &Value) -> bool {
    match value {
        // False counts as not set, because every switch is off by default.
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(keys) => keys.is_empty(),
        _ => false,
    }
}

fn display(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        stack::{CompileSetup, NamedBy},
    };

    fn stack(id: &str) -> Stack {
        let folder = RepoPath::normalize(&format!("appops/{id}")).unwrap();
        Stack {
            id: id.parse().unwrap(),
            names: id.parse().unwrap(),
            earlier_names: None,
            named_by: NamedBy::Names,
            project_folder: folder.parent().unwrap(),
            manifest: folder.child("stack.yaml"),
            folder,
            compile: Ok(CompileSetup::default()),
            cluster: None,
            kubeconfig: None,
            reads: std::collections::BTreeMap::new(),
        }
    }

    fn told(before: &str, after: &str) -> Vec<String> {
        let (before, after) = (Config::parse(before).unwrap(), Config::parse(after).unwrap());
        let (dev, prod) = (stack("shop/dev"), stack("shop/prod"));
        let both = [&dev, &prod].map(|stack| StackSides {
            before: Some(stack),
            after: Some(stack),
        });
        let changes = before.permission_changes(&after, &both);
        let told = changes.into_iter().map(|change| {
            let value = |value: Option<String>| value.unwrap_or("-".to_owned());
            let stacks = change.stacks.map_or("all".to_owned(), |stacks| {
                let stacks: Vec<_> = stacks.iter().map(StackId::as_str).collect();
                stacks.join(" ")
            });
            format!(
                "{}: {} → {} ({stacks})",
                change.key,
                value(change.from),
                value(change.to)
            )
        });
        told.collect()
    }

    #[test]
    fn each_setting_that_grants_power_is_told_with_its_stacks() {
        assert_eq!(told("version: 1\n", "{}"), [""; 0]);
        assert_eq!(
            told(
                "state: {url: 's3://good/x?region=eu'}\nkcl: {sandbox: required}\nterraform: {providers: [{source: a/b, version: '1'}]}\n",
                "state: {url: 's3://evil/x'}\nterraform: {binary: /tmp/tofu}\n",
            ),
            [
                "kcl.sandbox: required → - (all)",
                "state.url: s3://good/x?region=eu → s3://evil/x (all)",
                "terraform.binary: - → /tmp/tofu (all)",
                "terraform.providers: [{\"source\":\"a/b\",\"version\":\"1\",\"hashes\":[]}] → - (all)",
            ]
        );
        assert_eq!(
            told(
                "terraform: {provider_addresses: {hashicorp/vault: ['https://vault.acme.example']}}\n",
                "terraform: {provider_addresses: {hashicorp/vault: ['https://evil.example'], hashicorp/aws: ['insecure=true']}}\n",
            ),
            [
                "terraform.provider_addresses.hashicorp/aws: - → [\"insecure=true\"] (all)",
                "terraform.provider_addresses.hashicorp/vault: [\"https://vault.acme.example\"] → [\"https://evil.example\"] (all)",
            ]
        );
        assert_eq!(
            told(
                "{}\n",
                "terraform: {provider_identities: {hashicorp/aws: ['arn:aws:iam::111122223333:role/apply']}}\n",
            ),
            [
                "terraform.provider_identities.hashicorp/aws: - → [\"arn:aws:iam::111122223333:role/apply\"] (all)"
            ]
        );
        assert_eq!(
            told(
                "secrets: {stores: {job: {kind: env}}}\n",
                "secrets: {rotation: stop, stores: {job: {kind: env, allow: [{stacks: '**', paths: '**'}]}}}\n",
            ),
            [
                "secrets.rotation: write → stop (all)",
                "secrets.stores.job.allow: - → [{\"stacks\":\"**\",\"paths\":\"**\"}] (all)",
            ]
        );
        assert_eq!(
            told(
                "state: {url: 's3://b?endpoint=https://good.example'}\n",
                "state: {url: 's3://b?endpoint=https://evil.example'}\n",
            ),
            ["state.url: s3://b?endpoint=https://good.example → s3://b?endpoint=https://evil.example (all)"]
        );
        let role = |name: &str| {
            format!("logins: {{prod: {{aws: {{role: 'arn:aws:iam::111122223333:role/{name}'}}}}}}\n")
        };
        assert_eq!(
            told(
                &role("apply"),
                &format!(
                    "{}stacks: [{{match: 'appops/shop/prod', login: prod, environment: production, provider_identities: {{hashicorp/aws: [x]}}}}]\n",
                    role("admin")
                ),
            ),
            [
                "logins.prod.aws.role: arn:aws:iam::111122223333:role/apply → arn:aws:iam::111122223333:role/admin (all)",
                "stacks[].environment: - → production (shop/prod)",
                "stacks[].login: - → prod (shop/prod)",
                "stacks[].provider_identities.hashicorp/aws: - → [\"x\"] (shop/prod)",
            ]
        );
        let two = "clusters: {a: {context: one}, b: {}}\nstacks:\n- {match: '**', cluster: a}\n";
        assert_eq!(
            told(
                two,
                "clusters: {a: {context: two}, b: {}}\nstacks:\n- {match: '**', cluster: a}\n- {match: 'shop/prod', cluster: b, policy: {approvals: 2}, ignore: [/spec]}\n"
            ),
            [
                "clusters.a.context: one → two (shop/dev shop/prod)",
                "stacks[].cluster: a → b (shop/prod)",
                "stacks[].ignore: - → [\"/spec\"] (shop/prod)",
                "stacks[].policy.approvals: - → 2 (shop/prod)",
            ]
        );
    }
}

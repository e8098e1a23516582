//! What `konverge.yaml` says of one stack: its cluster, its order, its rules.

use globset::Glob;

use super::{Cluster, Config, StackRule, file::StackPolicy};
use crate::model::{ClusterName, Digest, digest::DigestBuilder, stack::Stack};

/// The rules in force for one stack.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EffectiveStack {
    /// The cluster a rule gives it.
    pub cluster: Option<ClusterName>,
    /// Globs of stacks that come before it.
    pub after: Vec<String>,
    /// Who may.
    pub policy: StackPolicy,
    /// The environment of its GitHub deployments.
    pub environment: Option<String>,
    /// Paths that are not compared.
    pub ignore: Vec<String>,
}

impl EffectiveStack {
    /// Over what bears on the stack's resources: its cluster and what is not compared. `None` if no rule says anything.
    pub fn digest(&self) -> Option<Digest> {
        let said = self.cluster.is_some() || !self.ignore.is_empty();
        said.then(|| {
            let mut builder = DigestBuilder::new("stack-rules");
            builder.part(self.cluster.as_ref().map_or("", ClusterName::as_str).as_bytes());
            for path in &self.ignore {
                builder.part(path.as_bytes());
            }
            builder.finish()
        })
    }

    /// Whether another stack comes before this one.
    pub fn comes_after(&self, other: &Stack) -> bool {
        self.after.iter().any(|pattern| glob_matches(pattern, other))
    }
}

/// Where a stack's Kubernetes resources go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterChoice {
    /// To this one.
    Named(ClusterName),
    /// Nothing is configured.
    Unconfigured,
    /// It names one that is not defined.
    Unknown(ClusterName),
    /// Several are defined, and no rule picks one.
    Ambiguous,
}

impl Config {
    /// The rules in force for a stack: for each key the last rule that matches and has the key.
    pub fn for_stack(&self, stack: &Stack) -> EffectiveStack {
        let mut effective = EffectiveStack::default();
        let matching = self.stacks.iter().filter(|rule| matches(rule, stack));
        for rule in matching {
            let StackRule {
                pattern: _,
                cluster,
                after,
                policy,
                environment,
                ignore,
            } = rule.clone();
            effective.cluster = cluster.or(effective.cluster);
            effective.after = after.unwrap_or(effective.after);
            effective.policy = policy.unwrap_or(effective.policy);
            effective.environment = environment.or(effective.environment);
            effective.ignore = ignore.unwrap_or(effective.ignore);
        }
        effective
    }

    /// The cluster of a stack: what its `stack.yaml` names, else what a rule gives it, else the only one there is.
    pub fn cluster_of(&self, stack: &Stack) -> ClusterChoice {
        let named = stack.cluster.clone().or_else(|| self.for_stack(stack).cluster);
        match named {
            Some(name) if self.clusters.contains_key(&name) => ClusterChoice::Named(name),
            Some(name) => ClusterChoice::Unknown(name),
            None => match self.clusters.keys().next() {
                None => ClusterChoice::Unconfigured,
                Some(only) if self.clusters.len() == 1 => ClusterChoice::Named(only.clone()),
                Some(_) => ClusterChoice::Ambiguous,
            },
        }
    }

    /// A cluster by name.
    pub fn cluster(&self, name: &ClusterName) -> Option<&Cluster> {
        self.clusters.get(name)
    }
}

/// Whether a glob matches a stack's folder or identity. `*` stays inside one component, `**` crosses.
fn glob_matches(pattern: &str, stack: &Stack) -> bool {
    let glob = globset::GlobBuilder::new(pattern).literal_separator(true).build();
    let Ok(matcher) = glob.map(|glob: Glob| glob.compile_matcher()) else {
        return false;
    };
    matcher.is_match(stack.folder.as_str()) || matcher.is_match(stack.id.as_str())
}

fn matches(rule: &StackRule, stack: &Stack) -> bool {
    glob_matches(&rule.pattern, stack)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{RepoPath, stack::CompileSetup};

    fn stack(folder: &str, id: &str) -> Stack {
        let folder = RepoPath::normalise(folder).unwrap();
        Stack {
            id: id.parse().unwrap(),
            project_folder: folder.parent().unwrap(),
            folder,
            compile: Ok(CompileSetup::default()),
            cluster: None,
            kubeconfig: None,
        }
    }

    #[test]
    fn the_last_match_wins_key_by_key() {
        let config = Config::parse(
            "clusters: {a: {}, b: {}}\nstacks:\n- {match: 'appops/**', cluster: a, after: ['infra/**']}\n- {match: 'shop/prod', cluster: b}\n",
        )
        .unwrap();
        let effective = config.for_stack(&stack("appops/shop/prod", "shop/prod"));
        assert_eq!(effective.cluster.unwrap().as_str(), "b");
        assert_eq!(effective.after, ["infra/**"]);
        let other = config.cluster_of(&stack("elsewhere/x/dev", "x/dev"));
        assert_eq!(other, ClusterChoice::Ambiguous);
    }

    #[test]
    fn a_star_stays_inside_a_component() {
        assert!(glob_matches(
            "appops/*/prod",
            &stack("appops/shop/prod", "shop/prod")
        ));
        assert!(!glob_matches("appops/*", &stack("appops/shop/prod", "shop/prod")));
    }
}

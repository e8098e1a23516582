//! The settings of `konverge.yaml` for one stack: its cluster, the stacks before it, its policy.

use std::collections::BTreeMap;

use super::{
    ClusterConfig, Config, DeliveryTool, HookWorkflow, PolicyConfig, StackRule, WorkflowTime,
    stack_glob::StackGlob, types::StackPolicy,
};
use konverge_base::model::{
    ClusterName, Digest, FieldPath, RepoPath, StackId, digest::DigestBuilder, other_names::OtherNames,
    stack::Stack,
};

/// The effective settings of one stack.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EffectiveStack {
    /// The cluster that a rule assigns.
    pub cluster: Option<ClusterName>,
    /// The workspace that a rule names.
    pub workspace: Option<String>,
    /// Globs of the stacks that are applied before this one.
    pub after: Vec<String>,
    /// The rules for who may apply the stack.
    pub policy: StackPolicy,
    /// The environment of the stack's GitHub deployments and of its apply. Only a rule that matches the folder sets it.
    pub environment: Option<String>,
    /// The name of the stack's login. Only a rule that matches the folder sets it.
    pub login: Option<String>,
    /// The values that the stack's Specs may set for providers, by the provider's source. Only rules that match the
    /// folder set them.
    pub provider_identities: BTreeMap<String, Vec<String>>,
    /// The controller that applies the stack's Kubernetes objects. Only a rule that matches the folder sets it.
    pub deliver: Option<DeliveryTool>,
    /// The paths that are not compared.
    pub ignore: Vec<FieldPath>,
}

impl EffectiveStack {
    /// Returns a function that is true for a stack, given by its identity and folder, that is applied before this one.
    /// The globs are compiled once.
    pub fn comes_after(&self) -> impl Fn(&StackId, &RepoPath) -> bool + use<> {
        let globs: Vec<_> = self
            .after
            .iter()
            .map(|pattern| StackGlob::compile(pattern))
            .collect();
        move |id, folder| globs.iter().any(|glob| matches(glob.as_ref(), id, folder))
    }
}

/// The cluster of a stack's Kubernetes resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterChoice {
    /// The named cluster.
    Named(ClusterName),
    /// No cluster is configured.
    Unconfigured,
    /// The stack names a cluster that is not configured.
    Unknown(ClusterName),
    /// Several clusters are configured, and no rule selects one.
    Ambiguous,
}

impl Config {
    /// Returns the effective settings of a stack. For each key, the last matching rule that has the key counts.
    pub fn for_stack(&self, stack: &Stack) -> EffectiveStack {
        self.rules().for_stack(stack)
    }

    /// Returns the effective settings by identity and folder, for a stack that was removed.
    pub fn for_place(&self, id: &StackId, folder: &RepoPath) -> EffectiveStack {
        self.rules().for_place(id, folder)
    }

    /// Returns the workflows that run around the apply of a stack at this time, in the order of the file. They match
    /// the current or another name of the stack, unless `policy.ended_names` ends that name. Each file is returned
    /// once.
    pub fn hook_workflows(
        &self,
        when: WorkflowTime,
        id: &StackId,
        folder: &RepoPath,
        known_as: &OtherNames,
    ) -> Vec<&HookWorkflow> {
        let others = self.policy.standing_names(folder, known_as);
        let names = || [id.as_str(), folder.as_str()].into_iter().chain(others.iter());
        let of_time = self.apply.hooks.workflows.iter().filter(|one| one.when == when);
        let mut found: Vec<&HookWorkflow> = Vec::new();
        for one in of_time.filter(|one| names().any(|name| one.is_for(name))) {
            if !found.iter().any(|first| first.workflow == one.workflow) {
                found.push(one);
            }
        }
        found
    }

    /// Returns the rules with compiled globs, for queries about many stacks.
    pub fn rules(&self) -> StackRules<'_> {
        let compiled = self
            .stacks
            .iter()
            .map(|rule| (StackGlob::compile(&rule.pattern), rule));
        StackRules {
            config: self,
            compiled: compiled.collect(),
        }
    }

    /// Returns the cluster of a stack: the one in its `stack.yaml`, or else the one of a rule, or else the only one.
    pub fn cluster_of(&self, stack: &Stack) -> ClusterChoice {
        self.rules().cluster_of(stack)
    }

    fn choice(&self, named: Option<ClusterName>) -> ClusterChoice {
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

    /// Returns the environments in the rules.
    pub fn environments(&self) -> Vec<&str> {
        let mut names: Vec<_> = self
            .stacks
            .iter()
            .filter_map(|rule| rule.environment.as_deref())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns a cluster by name.
    pub fn cluster(&self, name: &ClusterName) -> Option<&ClusterConfig> {
        self.clusters.get(name)
    }
}

impl PolicyConfig {
    /// Returns the number of approvals that a stack with this policy needs, and the reviewers of whom one must approve.
    /// The policy of the stack can only tighten that of the repository.
    pub fn required_approvals(&self, own: &StackPolicy) -> (u32, Vec<String>) {
        let approvals = self.approvals.unwrap_or(0).max(own.approvals.unwrap_or(0));
        let reviewers = if own.reviewers.is_empty() {
            &self.reviewers
        } else {
            &own.reviewers
        };
        (approvals, reviewers.clone())
    }
}

/// The rules for stacks, with compiled globs.
pub struct StackRules<'a> {
    config: &'a Config,
    compiled: Vec<(Option<StackGlob>, &'a StackRule)>,
}

impl StackRules<'_> {
    /// Returns the effective settings of a stack: if several rules match, the last one that sets a key wins.
    pub fn for_stack(&self, stack: &Stack) -> EffectiveStack {
        // The identity from the names counts as well: it differs from the stack's own if other folders have the same
        // names.
        self.for_names([&stack.id, &stack.names], &stack.folder)
    }

    /// Returns the cluster of a stack: the one in its `stack.yaml`, or else the one of a rule, or else the only one.
    pub fn cluster_of(&self, stack: &Stack) -> ClusterChoice {
        let named = stack.cluster.clone();
        self.config
            .choice(named.or_else(|| self.for_stack(stack).cluster))
    }

    /// Returns the digest of the settings that influence a stack's resources: its cluster (if a rule names it or if
    /// there is only one) and the paths that are not compared. `None` if there are none. A cluster in `stack.yaml` is
    /// not included, because that file is an input of its own.
    pub fn digest(&self, stack: &Stack) -> Option<Digest> {
        let EffectiveStack {
            cluster,
            ignore,
            deliver,
            ..
        } = self.for_stack(stack);
        let named = stack.cluster.clone().or_else(|| cluster.clone());
        // The text for an unknown cluster contains a blank, which no cluster name can contain, so the two never
        // collide.
        let goes_to = match self.config.choice(named) {
            ClusterChoice::Named(name) if stack.cluster.is_none() => name.to_string(),
            ClusterChoice::Named(_) | ClusterChoice::Unconfigured => {
                cluster.map_or_else(String::new, |name| name.to_string())
            }
            ClusterChoice::Unknown(name) => format!("no cluster {name}"),
            ClusterChoice::Ambiguous => "one of several".to_owned(),
        };
        let said = !goes_to.is_empty() || !ignore.is_empty() || deliver.is_some();
        said.then(|| {
            let mut builder = DigestBuilder::new("stack-rules");
            builder.part(goes_to.as_bytes());
            for path in &ignore {
                builder.part(path.as_str().as_bytes());
            }
            // No path of `ignore` begins with `deliver `, so this entry cannot collide with a path.
            if let Some(tool) = deliver {
                builder.part(format!("deliver {}", tool.word()).as_bytes());
            }
            builder.finish()
        })
    }

    /// Returns the patterns of rules that match none of the stacks.
    pub fn unmatched(&self, stacks: &[Stack]) -> Vec<&str> {
        let hits = |(glob, rule): &(Option<StackGlob>, &StackRule)| {
            stacks.iter().any(|stack| {
                let ids = [&stack.id, &stack.names];
                if is_of_folder(rule) {
                    matches_folder(glob.as_ref(), &stack.folder)
                } else {
                    ids.iter().any(|id| matches(glob.as_ref(), id, &stack.folder))
                }
            })
        };
        let unmatched = self.compiled.iter().filter(|rule| !hits(rule));
        unmatched.map(|(_, rule)| rule.pattern.as_str()).collect()
    }

    /// Returns the effective settings by identity and folder, for a stack that was removed.
    pub fn for_place(&self, id: &StackId, folder: &RepoPath) -> EffectiveStack {
        self.for_names([id, id], folder)
    }

    /// Returns the policy for a single name, an identity or a folder: that of the last matching rule that has one.
    pub fn policy_of_name(&self, name: &str) -> Option<StackPolicy> {
        let is_meant = |(glob, _): &&(Option<StackGlob>, &StackRule)| {
            glob.as_ref().is_some_and(|glob| glob.is_match(name))
        };
        let mut matching = self.compiled.iter().rev().filter(is_meant);
        matching.find_map(|(_, rule)| rule.policy.clone())
    }

    fn for_names(&self, ids: [&StackId; 2], folder: &RepoPath) -> EffectiveStack {
        let mut effective = EffectiveStack::default();
        let matching = self
            .compiled
            .iter()
            .filter(|(glob, _)| ids.iter().any(|id| matches(glob.as_ref(), id, folder)));
        for (glob, rule) in matching {
            let StackRule {
                pattern: _,
                identity: _,
                cluster,
                workspace,
                after,
                policy,
                environment,
                login,
                provider_identities,
                deliver,
                ignore,
            } = (*rule).clone();
            effective.cluster = cluster.or(effective.cluster);
            effective.workspace = workspace.or(effective.workspace);
            effective.after = after.unwrap_or(effective.after);
            effective.policy = policy.unwrap_or(effective.policy);
            // A pull request chooses the identities of stacks, so an identity must not decide which cloud login a stack
            // gets.
            if matches_folder(glob.as_ref(), folder) {
                effective.environment = environment.or(effective.environment);
                effective.login = login.or(effective.login);
                effective.deliver = deliver.or(effective.deliver);
                effective.provider_identities = provider_identities.unwrap_or(effective.provider_identities);
            }
            effective.ignore = ignore.unwrap_or(effective.ignore);
        }
        effective
    }
}

/// Returns true if a rule has a key for which only the folder is matched, not the identity.
fn is_of_folder(rule: &StackRule) -> bool {
    rule.environment.is_some()
        || rule.login.is_some()
        || rule.deliver.is_some()
        || rule.provider_identities.is_some()
}

fn matches_folder(glob: Option<&StackGlob>, folder: &RepoPath) -> bool {
    glob.is_some_and(|glob| glob.is_match(folder.as_str()))
}

/// Returns true if a glob matches a stack's folder or identity.
pub(super) fn matches(glob: Option<&StackGlob>, id: &StackId, folder: &RepoPath) -> bool {
    glob.is_some_and(|glob| glob.is_match(folder.as_str()) || glob.is_match(id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        stack::{CompileSetup, NamedBy},
    };

    fn stack(folder: &str, id: &str) -> Stack {
        let folder = RepoPath::normalize(folder).unwrap();
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
    fn the_login_and_the_environment_follow_the_folder_alone() {
        let config = Config::parse(
            "logins: {prod: {aws: {role: 'arn:aws:iam::111122223333:role/a'}}, dev: {aws: {role: 'arn:aws:iam::444455556666:role/a'}}}\nstacks:\n- {match: 'appops/*/prod', login: prod, environment: production, provider_identities: {hashicorp/aws: [x]}}\n- {match: 'shop/prod', login: dev, environment: dev, after: ['a/**'], provider_identities: {hashicorp/aws: [y]}}\n- {match: 'appops/late/*', login: dev}\n",
        )
        .unwrap();
        let known = |folder: &str, id: &str| {
            let effective = config.for_stack(&stack(folder, id));
            let [login, environment] =
                [effective.login, effective.environment].map(Option::unwrap_or_default);
            (
                login,
                environment,
                effective.after.len(),
                effective.provider_identities.len(),
            )
        };
        let words = |login: &str, environment: &str, after, lists| {
            (login.to_owned(), environment.to_owned(), after, lists)
        };
        // The second rule names an identity: it gives an order and nothing else.
        assert_eq!(
            known("appops/shop/prod", "shop/prod"),
            words("prod", "production", 1, 1)
        );
        assert_eq!(known("elsewhere/prod", "shop/prod"), words("", "", 1, 0));
        // Of two logins the last one wins.
        assert_eq!(
            known("appops/late/prod", "late/prod"),
            words("dev", "production", 0, 1)
        );
        let stacks = [
            stack("appops/shop/prod", "shop/prod"),
            stack("appops/late/x", "late/x"),
        ];
        assert_eq!(
            config.rules().unmatched(&stacks),
            ["shop/prod"],
            "it can give no login"
        );
    }

    #[test]
    fn the_digest_follows_the_cluster_that_a_stack_goes_to() {
        let digest = |text: &str, named: Option<&str>| {
            let mut stack = stack("appops/shop/prod", "shop/prod");
            stack.cluster = named.map(|name| name.parse().unwrap());
            Config::parse(text).unwrap().rules().digest(&stack)
        };
        // If no cluster is defined, or if stack.yaml names a defined one, there is nothing to add.
        assert_eq!(digest("{}", None), None);
        assert_eq!(digest("clusters: {a: {}}", Some("a")), None);
        assert_eq!(digest("clusters: {a: {}, b: {}}", Some("a")), None);
        let all = [
            digest("clusters: {a: {}}", None),
            digest("clusters: {b: {}}", None),
            digest("clusters: {a: {}, b: {}}", None),
            digest("clusters: {b: {}}", Some("a")),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert!(all.iter().all(Option::is_some) && different.len() == all.len());
        // The only cluster and the one of a rule give the same digest.
        let ruled = "clusters: {a: {}, b: {}}\nstacks:\n- {match: '**', cluster: a}";
        assert_eq!(digest(ruled, None), all[0]);
    }

    #[test]
    fn a_rule_that_matches_nothing_is_named() {
        let config = Config::parse(
            "stacks: [{match: 'appops/**'}, {match: shop/prod}, {match: appops/shop}, {match: 'x/*'}]",
        )
        .unwrap();
        let stacks = [stack("appops/shop/prod", "shop/prod")];
        assert_eq!(config.rules().unmatched(&stacks), ["appops/shop", "x/*"]);
    }

    #[test]
    fn a_star_stays_inside_a_component() {
        let told = |pattern: &str, stack: &Stack| {
            matches(StackGlob::compile(pattern).as_ref(), &stack.id, &stack.folder)
        };
        assert!(told("appops/*/prod", &stack("appops/shop/prod", "shop/prod")));
        assert!(!told("appops/*", &stack("appops/shop/prod", "shop/prod")));
    }
}

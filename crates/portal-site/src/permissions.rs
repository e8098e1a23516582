//! The permissions page: each line of `konverge.yaml` that allows or forbids an action to somebody.

use super::branch_config::BranchConfig;
use konverge_config::{Config, FreezeConfig, PolicyEnforcement, PortalRole, StackPolicy, WorkflowTime};
use konverge_portal::{Permission, PermissionSubject, PermissionsDocument};

/// The glob that matches every stack.
const EVERY_STACK: &str = "**";

/// Returns the permissions of the default branch.
pub fn permissions(branch: &BranchConfig) -> PermissionsDocument {
    let config = &branch.config;
    let mut lines = PermissionLines::default();
    lines.policies(config);
    lines.overrides(config);
    lines.rollouts(config);
    lines.portal(config);
    lines.secrets(config);
    lines.identities(config);
    lines.automation(config);
    let mut permissions = lines.0;
    permissions.sort_by_key(|permission| permission.subject);
    PermissionsDocument {
        version: 1,
        commit: branch.commit.clone(),
        permissions,
    }
}

/// The permissions, in the order of the file.
#[derive(Default)]
struct PermissionLines(Vec<Permission>);

/// One permission: for whom, for which stacks, and at which key of the file.
struct Line<'a> {
    who: &'a [String],
    stacks: &'a str,
    key: String,
}

impl<'a> Line<'a> {
    fn new(who: &'a [String], stacks: &'a str, key: impl Into<String>) -> Self {
        let key = key.into();
        Self { who, stacks, key }
    }
}

impl PermissionLines {
    fn add(&mut self, subject: PermissionSubject, line: Line<'_>, may: impl Into<String>) {
        self.0.push(Permission {
            subject,
            who: line.who.to_vec(),
            may: may.into(),
            stacks: vec![line.stacks.to_owned()],
            key: line.key,
        });
    }

    /// Adds approvals, actors, freezes and limits: first those for all stacks, then those of rules.
    fn policies(&mut self, config: &Config) {
        let policy = &config.policy;
        let of_all = StackPolicy {
            approvals: policy.approvals,
            reviewers: policy.reviewers.clone(),
            actors: policy.actors.clone(),
            freeze: policy.freeze.clone(),
            max_destructive: policy.max_destructive,
        };
        if of_all.approvals.is_none() && of_all.reviewers.is_empty() {
            self.add(
                PermissionSubject::Approvals,
                Line::new(&[], EVERY_STACK, "policy.approvals"),
                "no approval is needed beyond what the forge asks for",
            );
        }
        if of_all.actors.is_empty() {
            self.add(
                PermissionSubject::Applies,
                Line::new(&[], EVERY_STACK, "policy.actors"),
                "everybody whom the forge lets merge or start the workflow may apply",
            );
        }
        self.policy(&of_all, EVERY_STACK, "policy");
        for (number, rule) in config.stacks.iter().enumerate() {
            if let Some(policy) = &rule.policy {
                self.policy(policy, &rule.pattern, &format!("stacks[{number}].policy"));
            }
        }
    }

    fn policy(&mut self, policy: &StackPolicy, stacks: &str, key: &str) {
        let line = |who, what: &str| Line::new(who, stacks, format!("{key}.{what}"));
        if let Some(count) = policy.approvals {
            self.add(
                PermissionSubject::Approvals,
                line(&[], "approvals"),
                format!(
                    "a pull request needs {}",
                    konverge_report::plural(count as usize, "approval")
                ),
            );
        }
        if !policy.reviewers.is_empty() {
            self.add(
                PermissionSubject::Approvals,
                line(&policy.reviewers, "reviewers"),
                "one of those named must approve",
            );
        }
        if !policy.actors.is_empty() {
            self.add(
                PermissionSubject::Applies,
                line(&policy.actors, "actors"),
                "only those named may merge or start an apply",
            );
        }
        for FreezeConfig { from, until, reason } in &policy.freeze {
            self.add(
                PermissionSubject::Applies,
                line(&[], "freeze"),
                format!("nothing is applied from {from} until {until}: {reason}"),
            );
        }
        if let Some(count) = policy.max_destructive {
            self.add(
                PermissionSubject::Applies,
                line(&[], "max_destructive"),
                format!(
                    "one apply deletes or replaces at most {} of a stack without a separate approval",
                    konverge_report::plural(count as usize, "resource")
                ),
            );
        }
    }

    fn overrides(&mut self, config: &Config) {
        for (number, set) in config.policy.sets.iter().enumerate() {
            let by = set.overriders.as_ref().map(|overriders| &overriders.by[..]);
            let may = match set.enforcement() {
                PolicyEnforcement::Advise => "a denial is shown, and stops nothing",
                PolicyEnforcement::Override => "those named override a denial, except of their own change",
                PolicyEnforcement::Always => "nobody overrides a denial",
            };
            let is_overridden = set.enforcement() == PolicyEnforcement::Override;
            self.add(
                PermissionSubject::Overrides,
                Line::new(
                    by.filter(|_| is_overridden).unwrap_or_default(),
                    set.stacks.as_deref().unwrap_or(EVERY_STACK),
                    format!("policy.sets[{number}]"),
                ),
                format!("for the set {}: {may}", set.name),
            );
        }
        for (number, exception) in config.policy.exceptions.iter().enumerate() {
            let rule = exception.rule.as_deref().unwrap_or("every rule");
            self.add(
                PermissionSubject::Overrides,
                Line::new(
                    &[],
                    exception.stacks.as_deref().unwrap_or(EVERY_STACK),
                    format!("policy.exceptions[{number}]"),
                ),
                format!(
                    "findings of the set {} ({rule}) on {} do not count until {}: {}",
                    exception.set, exception.resource, exception.until, exception.reason
                ),
            );
        }
    }

    fn rollouts(&mut self, config: &Config) {
        for rollout in &config.rollouts {
            for wave in &rollout.waves {
                for gate in &wave.gates {
                    let Some(approval) = config.gates.get(gate).and_then(|gate| gate.approve.as_ref()) else {
                        continue;
                    };
                    self.add(
                        PermissionSubject::Rollouts,
                        Line::new(&approval.by, &wave.pattern, format!("gates.{gate}.approve.by")),
                        format!(
                            "one of those named lets the rollout {} go on after this wave",
                            rollout.name
                        ),
                    );
                }
            }
        }
    }

    fn portal(&mut self, config: &Config) {
        let may = |role: PortalRole, stacks: &str| match role {
            PortalRole::Viewer => "see these stacks",
            PortalRole::Operator if stacks == EVERY_STACK => {
                "see these stacks, ask for operations, end a lease, freeze all applies"
            }
            PortalRole::Operator => "see these stacks, ask for operations, end a lease",
        };
        for (number, role) in config.portal.roles.iter().enumerate() {
            self.add(
                PermissionSubject::Portal,
                Line::new(&role.groups, &role.pattern, format!("portal.roles[{number}]")),
                may(role.role, &role.pattern),
            );
        }
        for (number, workload) in config.portal.workloads.iter().enumerate() {
            let who: Vec<_> = workload
                .subjects
                .iter()
                .map(|subject| format!("{subject} of {}", workload.issuer))
                .collect();
            self.add(
                PermissionSubject::Portal,
                Line::new(&who, &workload.pattern, format!("portal.workloads[{number}]")),
                may(workload.role, &workload.pattern),
            );
        }
    }

    fn secrets(&mut self, config: &Config) {
        for (name, store) in &config.secrets.stores {
            for (number, rule) in store.allow.iter().enumerate() {
                self.add(
                    PermissionSubject::Secrets,
                    Line::new(
                        &[],
                        &rule.stacks,
                        format!("secrets.stores.{name}.allow[{number}]"),
                    ),
                    format!("these stacks read {} of the store {name}", rule.paths),
                );
            }
        }
        if !config.state.encrypt_to.is_empty() {
            self.add(
                PermissionSubject::States,
                Line::new(&config.state.encrypt_to, EVERY_STACK, "state.encrypt_to"),
                "decrypt the states",
            );
        }
    }

    fn identities(&mut self, config: &Config) {
        for (number, rule) in config.stacks.iter().enumerate() {
            let Some(name) = &rule.login else { continue };
            let login = config.logins.get(name);
            let who: Vec<_> = login
                .into_iter()
                .flat_map(|login| {
                    [
                        login.aws.as_ref().map(|aws| &aws.role),
                        login.google.as_ref().map(|google| &google.service_account),
                        login.azure.as_ref().map(|azure| &azure.client_id),
                        login.alibaba.as_ref().map(|alibaba| &alibaba.role),
                    ]
                })
                .flatten()
                .cloned()
                .collect();
            self.add(
                PermissionSubject::Identities,
                Line::new(&who, &rule.pattern, format!("stacks[{number}].login")),
                format!("applies of these stacks act as the login {name}"),
            );
        }
        let of_all = config.terraform.provider_identities.iter();
        let of_all = of_all.map(|(provider, who)| {
            (
                provider,
                who,
                EVERY_STACK,
                "terraform.provider_identities".to_owned(),
            )
        });
        let of_rules = config.stacks.iter().enumerate().flat_map(|(number, rule)| {
            let identities = rule.provider_identities.iter().flatten();
            identities.map(move |(provider, who)| {
                let key = format!("stacks[{number}].provider_identities");
                (provider, who, rule.pattern.as_str(), key)
            })
        });
        for (provider, who, stacks, key) in of_all.chain(of_rules) {
            self.add(
                PermissionSubject::Identities,
                Line::new(who, stacks, key),
                format!("a Spec of these stacks may set this for the provider {provider}"),
            );
        }
    }

    fn automation(&mut self, config: &Config) {
        for (number, rule) in config.set.allow.iter().enumerate() {
            self.add(
                PermissionSubject::Automation,
                Line::new(&rule.from, &rule.stacks, format!("set.allow[{number}]")),
                format!("these repositories ask for edits of {}", rule.paths.join(", ")),
            );
        }
        let hooks = &config.apply.hooks;
        for (number, workflow) in hooks.workflows.iter().enumerate() {
            let when = match workflow.when {
                WorkflowTime::Pre => "before",
                WorkflowTime::Post => "after",
            };
            let who = [workflow.workflow.clone()];
            self.add(
                PermissionSubject::Automation,
                Line::new(&who, &workflow.stacks, format!("apply.hooks.workflows[{number}]")),
                format!("this workflow runs {when} an apply"),
            );
        }
        if !hooks.service_accounts.is_empty() {
            self.add(
                PermissionSubject::Automation,
                Line::new(
                    &hooks.service_accounts,
                    EVERY_STACK,
                    "apply.hooks.service_accounts",
                ),
                "hooks may run as these service accounts",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(config: &str) -> Vec<String> {
        let branch = BranchConfig {
            commit: None,
            config: Config::parse(config).unwrap(),
        };
        let permissions = permissions(&branch).permissions;
        permissions
            .into_iter()
            .map(|line| {
                format!(
                    "{:?}: [{}] {} ({}; {})",
                    line.subject,
                    line.who.join(", "),
                    line.may,
                    line.stacks.join(", "),
                    line.key
                )
            })
            .collect()
    }

    #[test]
    fn what_nobody_limits_is_said() {
        assert_eq!(
            lines("version: 1\n"),
            [
                "Approvals: [] no approval is needed beyond what the forge asks for (**; policy.approvals)",
                "Applies: [] everybody whom the forge lets merge or start the workflow may apply (**; policy.actors)",
            ]
        );
    }

    #[test]
    fn each_line_that_lets_somebody_do_something_is_named_with_its_key() {
        let found = lines(
            "version: 1
policy:
  approvals: 1
  reviewers: [acme/sre]
  actors: [ada]
  sets:
  - {name: base, path: policies/base, override: {by: [acme/security]}}
  - {name: hard, path: policies/hard}
stacks:
- {match: 'apps/*/prod', policy: {approvals: 2, max_destructive: 3}, login: prod}
logins: {prod: {aws: {role: 'arn:aws:iam::111122223333:role/apply'}}}
rollouts:
- {name: web, waves: [{match: 'apps/*/canary', gates: [go]}, {match: 'apps/*/prod'}]}
gates: {go: {approve: {by: [acme/sre]}}}
portal:
  login: {issuer: 'https://login.acme.example', client_id: portal, url: 'https://portal.acme.example'}
  roles: [{groups: [sre], role: operator, match: '**'}, {groups: [shop], role: viewer, match: 'apps/shop/*'}]
secrets: {stores: {env: {kind: env, allow: [{stacks: 'apps/shop/*', paths: 'SHOP_*'}]}}}
set: {allow: [{stacks: 'apps/shop/*', paths: [image], from: [acme/shop]}]}
",
        );
        for line in [
            "Approvals: [] a pull request needs 1 approval (**; policy.approvals)",
            "Approvals: [acme/sre] one of those named must approve (**; policy.reviewers)",
            "Approvals: [] a pull request needs 2 approvals (apps/*/prod; stacks[0].policy.approvals)",
            "Applies: [ada] only those named may merge or start an apply (**; policy.actors)",
            "Applies: [] one apply deletes or replaces at most 3 resources of a stack without a separate approval (apps/*/prod; stacks[0].policy.max_destructive)",
            "Overrides: [acme/security] for the set base: those named override a denial, except of their own change (**; policy.sets[0])",
            "Overrides: [] for the set hard: nobody overrides a denial (**; policy.sets[1])",
            "Rollouts: [acme/sre] one of those named lets the rollout web go on after this wave (apps/*/canary; gates.go.approve.by)",
            "Portal: [sre] see these stacks, ask for operations, end a lease, freeze all applies (**; portal.roles[0])",
            "Portal: [shop] see these stacks (apps/shop/*; portal.roles[1])",
            "Secrets: [] these stacks read SHOP_* of the store env (apps/shop/*; secrets.stores.env.allow[0])",
            "Identities: [arn:aws:iam::111122223333:role/apply] applies of these stacks act as the login prod (apps/*/prod; stacks[0].login)",
            "Automation: [acme/shop] these repositories ask for edits of image (apps/shop/*; set.allow[0])",
        ] {
            assert!(found.iter().any(|one| one == line), "{line}: {found:#?}");
        }
    }
}

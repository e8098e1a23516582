//! `portal` in `konverge.yaml`: where the pages are published, who may log in to `konverge serve`, and what they may
//! see and do there.

use globset::GlobMatcher;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    config_problem::{Problem, problem},
    proxy_range::ProxyRange,
    stack_glob::{self, glob_problem},
};
use konverge_base::model::RepoPath;
use konverge_forge::WorkflowPage;

/// The glob that matches all stacks.
const EVERY_STACK: &str = "**";

/// The portal: pages that show the state of all stacks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Portal")]
pub struct PortalConfig {
    /// The address, as in `state.url`, of a private bucket to which the scheduled drift check writes the pages of
    /// `konverge portal build`. Default: nowhere.
    pub publish: Option<String>,
    /// The login of `konverge serve`. Without it the server listens on addresses of its machine alone.
    pub login: Option<PortalLogin>,
    /// The permissions of the groups of the login. Nobody else sees a stack.
    pub roles: Vec<PortalRoleRule>,
    /// Scripts that send a token of their own to `/api/v1`. No other token is accepted.
    pub workloads: Vec<PortalWorkload>,
    /// The proxies in front of `konverge serve`: addresses or ranges, such as `10.0.0.0/8`. Of a connection from one of
    /// them `X-Forwarded-For` says whose it is, for the limit of sign-ins and for the audit. Default: none, so every
    /// connection is of its own address.
    pub trusted_proxies: Vec<ProxyRange>,
    /// The page of the workflow to which operations lead: `https://github.com/acme/infra/actions/workflows/konverge.yml`. At
    /// Gitea it is `https://HOST/acme/infra/actions?workflow=konverge.yml`, at GitLab
    /// `https://HOST/acme/infra/-/pipelines/new`.
    pub workflow: Option<String>,
}

/// The login of `konverge serve`: OpenID Connect, authorization code with PKCE.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalLogin {
    /// The issuer, as its discovery document names it: `https://login.acme.example`.
    pub issuer: String,
    /// The id of the portal at the issuer.
    pub client_id: String,
    /// The environment variable with the client's secret. Default: a public client, which has none.
    #[serde(default)]
    pub client_secret_env: Option<String>,
    /// The address of the portal, as browsers name it: `https://portal.acme.example`. The issuer returns to
    /// `/login/callback` below it.
    pub url: String,
    /// The claim of the ID token with the person's groups. Default: `groups`.
    #[serde(default)]
    pub groups_claim: Option<String>,
    /// Scopes beside `openid` that the issuer must be asked for, such as `profile` or `groups`.
    #[serde(default)]
    pub scopes: Vec<String>,
}

impl PortalLogin {
    /// Returns the claim with the groups.
    pub fn groups_claim(&self) -> &str {
        self.groups_claim.as_deref().unwrap_or("groups")
    }
}

/// The permissions for a stack in the portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortalRole {
    /// Read.
    Viewer,
    /// Read, ask for operations, and end a lease. Freeze all applies, if the rule matches `**`.
    Operator,
}

/// The role of groups for stacks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalRoleRule {
    /// The groups, as the issuer names them.
    pub groups: Vec<String>,
    /// The role that the groups have.
    pub role: PortalRole,
    /// A glob of folders of stacks, such as `appops/*/prod`. `**` is every stack.
    #[serde(rename = "match")]
    pub pattern: String,
}

/// A script, and its role for stacks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalWorkload {
    /// The issuer of the ID tokens of the script: `https://token.actions.githubusercontent.com`.
    pub issuer: String,
    /// The audience that the tokens of the script must name.
    pub audience: String,
    /// The subjects, each as the tokens of the script name it: `repo:acme/infra:ref:refs/heads/main`. Other subjects
    /// are refused.
    pub subjects: Vec<String>,
    /// The role that the script has.
    pub role: PortalRole,
    /// A glob of folders of stacks, such as `appops/*/prod`. `**` is every stack.
    #[serde(rename = "match")]
    pub pattern: String,
}

/// The stacks that a person or a script may see and operate; none by default.
#[derive(Debug, Clone, Default)]
pub struct PortalGrants(Vec<PortalGrant>);

#[derive(Debug, Clone)]
struct PortalGrant {
    role: PortalRole,
    pattern: String,
    glob: GlobMatcher,
}

impl PortalGrants {
    fn new<'a>(rules: impl Iterator<Item = (PortalRole, &'a String)>) -> Self {
        let grants = rules.filter_map(|(role, pattern)| {
            Some(PortalGrant {
                role,
                pattern: pattern.clone(),
                glob: matcher(pattern).ok()?,
            })
        });
        Self(grants.collect())
    }

    /// Returns true if there are no grants.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the grants allow to see the stack in this folder.
    pub fn may_see(&self, folder: &RepoPath) -> bool {
        self.matching(folder).next().is_some()
    }

    /// Returns true if the grants allow to request operations on the stack in this folder.
    pub fn may_operate(&self, folder: &RepoPath) -> bool {
        self.matching(folder)
            .any(|grant| grant.role == PortalRole::Operator)
    }

    /// Returns true if the grants allow to see every stack.
    pub fn sees_all(&self) -> bool {
        self.0.iter().any(|grant| grant.pattern == EVERY_STACK)
    }

    /// Returns true if the grants allow to freeze all applies: only an operator of every stack may do this.
    pub fn may_freeze(&self) -> bool {
        let mut grants = self.0.iter();
        grants.any(|grant| grant.role == PortalRole::Operator && grant.pattern == EVERY_STACK)
    }

    /// Returns the globs of the visible stacks, sorted. Two persons with equal globs see the same stacks.
    pub fn patterns(&self) -> Vec<String> {
        let mut patterns: Vec<_> = self.0.iter().map(|grant| grant.pattern.clone()).collect();
        patterns.sort_unstable();
        patterns.dedup();
        patterns
    }

    /// Returns the roles with their globs, to be shown to the person.
    pub fn roles(&self) -> impl Iterator<Item = (PortalRole, &str)> {
        self.0.iter().map(|grant| (grant.role, grant.pattern.as_str()))
    }

    fn matching<'a>(&'a self, folder: &'a RepoPath) -> impl Iterator<Item = &'a PortalGrant> {
        self.0
            .iter()
            .filter(|grant| grant.pattern == EVERY_STACK || grant.glob.is_match(folder.as_str()))
    }
}

impl PortalConfig {
    /// Returns the grants of a person in these groups.
    pub fn grants_of_groups(&self, groups: &[String]) -> PortalGrants {
        let rules = self.roles.iter();
        let rules = rules.filter(|rule| rule.groups.iter().any(|group| groups.contains(group)));
        PortalGrants::new(rules.map(|rule| (rule.role, &rule.pattern)))
    }

    /// Returns the grants of a script, by the claims of its verified token.
    pub fn grants_of_workload(&self, issuer: &str, audience: &str, subject: &str) -> PortalGrants {
        let workloads = self.workloads.iter().filter(|workload| {
            workload.issuer == issuer
                && workload.audience == audience
                && workload.subjects.iter().any(|known| known == subject)
        });
        PortalGrants::new(workloads.map(|workload| (workload.role, &workload.pattern)))
    }

    /// Returns true if a role names this group. Other groups do not change what a person may do.
    pub fn knows_group(&self, group: &str) -> bool {
        self.roles
            .iter()
            .any(|rule| rule.groups.iter().any(|known| known == group))
    }

    /// Returns the first problem of login, roles, workloads or workflow, with a hint.
    pub(super) fn problem(&self) -> Option<Problem> {
        let globs = self.roles.iter().map(|rule| ("portal.roles", &rule.pattern));
        let globs = globs.chain(self.workloads.iter().map(|of| ("portal.workloads", &of.pattern)));
        self.login
            .as_ref()
            .and_then(login_problem)
            .or_else(|| self.workloads.iter().find_map(workload_problem))
            .or_else(|| {
                let rule = self.roles.iter().find(|rule| {
                    rule.groups.is_empty() || rule.groups.iter().any(|group| group.trim().is_empty())
                })?;
                problem(format!(
                    "portal.roles: the rule for `{}` names no group, or an empty one",
                    rule.pattern.escape_debug()
                ))
                .hint("write `groups: [sre]`")
            })
            .or_else(|| {
                let hint = "write `appops/*/prod`, or `**` for every stack";
                globs
                    .into_iter()
                    .find_map(|(key, glob)| glob_problem(key, glob, hint))
            })
            .or_else(|| {
                let needs = self.login.is_none() && !(self.roles.is_empty() && self.workloads.is_empty());
                needs.then_some(())?;
                problem("portal.roles and portal.workloads have no effect without portal.login")
                    .hint("add `portal.login` with `issuer`, `client_id` and `url`")
            })
            .or_else(|| {
                let workflow = self.workflow.as_ref()?;
                WorkflowPage::parse(workflow).is_none().then_some(())?;
                problem(format!(
                    "portal.workflow: `{}` is not the page of a workflow",
                    workflow.escape_debug()
                ))
                .hint(
                    "write `https://github.com/OWNER/NAME/actions/workflows/konverge.yml`; at Gitea \
                     `https://HOST/OWNER/NAME/actions?workflow=konverge.yml`, at GitLab \
                     `https://HOST/GROUP/NAME/-/pipelines/new`",
                )
            })
    }
}

fn matcher(pattern: &str) -> Result<GlobMatcher, globset::Error> {
    Ok(stack_glob::glob(pattern)?.compile_matcher())
}

fn login_problem(login: &PortalLogin) -> Option<Problem> {
    let addresses = [("issuer", &login.issuer), ("url", &login.url)];
    let wrong = addresses.into_iter().find(|(_, address)| !is_secure(address));
    if let Some((key, address)) = wrong {
        return problem(format!(
            "portal.login.{key}: `{}` is not an `https://` address",
            address.escape_debug()
        ))
        .hint("write `https://HOST`; `http://` is accepted only for 127.0.0.1, [::1] and localhost");
    }
    let path = login.url.splitn(4, '/').nth(3).unwrap_or_default();
    if !path.is_empty() || login.url.contains(['?', '#', '@']) {
        return problem(format!(
            "portal.login.url: `{}` is more than scheme, host and port",
            login.url.escape_debug()
        ))
        .hint("write `https://portal.acme.example`: the portal is at the root of its host");
    }
    login.client_id.trim().is_empty().then_some(())?;
    problem("portal.login.client_id is empty").hint("write the id that the issuer gave to the portal")
}

fn workload_problem(workload: &PortalWorkload) -> Option<Problem> {
    if !is_secure(&workload.issuer) {
        return problem(format!(
            "portal.workloads: issuer `{}` is not an `https://` address",
            workload.issuer.escape_debug()
        ))
        .hint("write `https://token.actions.githubusercontent.com` for jobs of GitHub");
    }
    let lacks = workload.audience.trim().is_empty()
        || workload.subjects.is_empty()
        || workload.subjects.iter().any(|subject| subject.trim().is_empty());
    lacks.then_some(())?;
    problem("portal.workloads: audience and subjects must not be empty")
        .hint("the issuer of GitHub's jobs gives a token for any audience to every repository: name the subjects, such as `repo:acme/infra:ref:refs/heads/main`")
}

/// Returns true for an address whose traffic is encrypted or stays on this machine.
fn is_secure(address: &str) -> bool {
    if address.contains('@') {
        return false;
    }
    if let Some(rest) = address.strip_prefix("https://") {
        return !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace);
    }
    let Some(rest) = address.strip_prefix("http://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_loopback = host
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    is_loopback || host == "localhost"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const LOGIN: &str =
        "login: {issuer: 'https://id.example', client_id: portal, url: 'https://portal.example'}";

    fn portal(rest: &str) -> PortalConfig {
        Config::parse(&format!("portal:\n  {LOGIN}\n{rest}"))
            .unwrap()
            .portal
    }

    fn folder(path: &str) -> RepoPath {
        RepoPath::normalize(path).unwrap()
    }

    #[test]
    fn nobody_sees_what_no_rule_grants() {
        let portal = portal(
            "  roles:\n  - {groups: [shop], role: viewer, match: 'appops/shop/*'}\n  \
             - {groups: [sre], role: operator, match: '**'}\n  - {groups: [shop-lead], role: operator, match: 'appops/shop/dev'}\n",
        );
        let groups = |names: &[&str]| {
            portal.grants_of_groups(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let shop = groups(&["shop", "others"]);
        assert!(shop.may_see(&folder("appops/shop/prod")) && !shop.may_operate(&folder("appops/shop/prod")));
        assert!(
            !shop.may_see(&folder("appops/bank/prod")) && !shop.may_see(&folder("appops/shop/prod/more"))
        );
        assert!(!shop.sees_all() && !shop.may_freeze());
        let lead = groups(&["shop-lead"]);
        assert!(lead.may_operate(&folder("appops/shop/dev")) && !lead.may_see(&folder("appops/shop/prod")));
        assert!(!lead.may_freeze());
        let sre = groups(&["sre"]);
        assert!(sre.may_operate(&RepoPath::root()) && sre.sees_all() && sre.may_freeze());
        for nobody in [groups(&[]), groups(&["SRE", "sre ", "shop/"])] {
            assert!(nobody.is_empty() && !nobody.may_see(&RepoPath::root()) && !nobody.sees_all());
        }
        assert!(portal.knows_group("shop") && !portal.knows_group("others"));
    }

    #[test]
    fn a_script_needs_issuer_audience_and_subject() {
        let portal = portal(
            "  workloads: [{issuer: 'https://ci.example', audience: portal, subjects: ['repo:acme/infra:ref:refs/heads/main'], role: viewer, match: '**'}]\n",
        );
        let main = "repo:acme/infra:ref:refs/heads/main";
        assert!(
            !portal
                .grants_of_workload("https://ci.example", "portal", main)
                .is_empty()
        );
        for (issuer, audience, subject) in [
            ("https://other.example", "portal", main),
            ("https://ci.example", "other", main),
            (
                "https://ci.example",
                "portal",
                "repo:acme/infra:ref:refs/heads/mai",
            ),
            (
                "https://ci.example",
                "portal",
                "repo:evil/infra:ref:refs/heads/main",
            ),
        ] {
            assert!(
                portal.grants_of_workload(issuer, audience, subject).is_empty(),
                "{subject}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let with_login = |rest: &str| format!("portal:\n  {LOGIN}\n  {rest}\n");
        for (text, expected) in [
            ("portal: {login: {issuer: 'http://id.example', client_id: a, url: 'https://p'}}".to_owned(), "portal.login.issuer"),
            ("portal: {login: {issuer: 'https://id.example', client_id: a, url: 'http://p.example'}}".to_owned(), "portal.login.url"),
            ("portal: {login: {issuer: 'https://id.example', client_id: a, url: 'http://localhost.evil'}}".to_owned(), "portal.login.url"),
            ("portal: {login: {issuer: 'http://localhost:1@evil.example', client_id: a, url: 'https://p'}}".to_owned(), "portal.login.issuer"),
            ("portal: {login: {issuer: 'https://id.example', client_id: a, url: 'https://p/below'}}".to_owned(), "more than scheme"),
            ("portal: {login: {issuer: 'https://id.example', client_id: ' ', url: 'https://p'}}".to_owned(), "client_id is empty"),
            ("portal: {roles: [{groups: [a], role: viewer, match: '**'}]}".to_owned(), "without portal.login"),
            (with_login("roles: [{groups: [], role: viewer, match: '**'}]"), "names no group"),
            (with_login("roles: [{groups: [a], role: viewer, match: 'a{'}]"), "is not a glob"),
            (with_login("roles: [{groups: [a], role: admin, match: '**'}]"), "admin"),
            (with_login("roles: [{groups: [a], role: viewer}]"), "match"),
            (with_login("workloads: [{issuer: 'https://a', audience: p, subjects: [], role: viewer, match: '**'}]"), "must not be empty"),
            (with_login("workloads: [{issuer: 'ftp://a', audience: p, subjects: [s], role: viewer, match: '**'}]"), "is not an `https://`"),
            (with_login("workflow: 'https://github.com/acme/infra'"), "not the page of a workflow"),
            (with_login("workflow: 'javascript:alert(1)//actions/workflows/a.yml'"), "not the page of a workflow"),
        ] {
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let local =
            "portal: {login: {issuer: 'http://127.0.0.1:9', client_id: a, url: 'http://localhost:8080'}}";
        assert!(Config::parse(local).is_ok());
    }
}

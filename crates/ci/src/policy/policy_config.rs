//! Converts the rules of `konverge.yaml` into policies for one stack.

use jiff::Timestamp;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, StackId, other_names::OtherNames},
};
use konverge_config::{self as config, Config, PolicyConfig, StackPolicy};
use konverge_policy::{CodeOwners, EffectivePolicy, Freeze};

/// Returns the rules of the repository, combined with those of the stack: more approvals, other people, additional
/// freezes. A removed stack keeps its rules, because they decide whether the stack may be deleted.
///
/// The plan must satisfy each of the returned policies. The first one has the strictest limits of all names of the
/// stack. Each of the others requires the people of another name: a name in `known_as`, or the folder alone, because a
/// pull request chooses the identity.
///
/// # Errors
/// A time in `policy.freeze` is invalid.
pub fn effective_policies(
    config: &Config,
    id: &StackId,
    folder: &RepoPath,
    known_as: &OtherNames,
) -> Result<Vec<EffectivePolicy>, UserError> {
    let rules = config.rules();
    let mut policies = vec![narrowed(&config.policy, rules.for_place(id, folder).policy)?];
    let standing = config.policy.standing_names(folder, known_as);
    let of_folder = rules.policy_of_name(folder.as_str());
    if of_folder.is_some() || !standing.is_empty() {
        let policy = narrowed(&config.policy, of_folder.unwrap_or_default())?;
        add_name(&mut policies, policy);
    }
    for name in standing.iter() {
        let policy = rules.policy_of_name(name).unwrap_or_default();
        add_name(&mut policies, narrowed(&config.policy, policy)?);
    }
    // The code owners of the present folder are required anyway, but an earlier folder may have other owners.
    for earlier in &standing.folders {
        let policy = rules.policy_of_name(earlier.as_str()).unwrap_or_default();
        let policy = narrowed(&config.policy, policy)?;
        if policy.reviewers.iter().any(|name| name == CodeOwners::NAME) {
            let owned_folder = Some(earlier.clone());
            let policy = EffectivePolicy {
                owned_folder,
                ..policy
            };
            add_name(&mut policies, policy);
        }
    }
    Ok(policies)
}

/// Adds the rules of another name of the stack. Its limits are merged into the first policy, and its people become a
/// policy of their own.
fn add_name(policies: &mut Vec<EffectivePolicy>, other: EffectivePolicy) {
    let first = &mut policies[0];
    first.approvals = first.approvals.max(other.approvals);
    for freeze in other.freeze {
        if !first.freeze.contains(&freeze) {
            first.freeze.push(freeze);
        }
    }
    first.max_destructive = match (first.max_destructive, other.max_destructive) {
        (Some(own), Some(other)) => Some(own.min(other)),
        (own, other) => own.or(other),
    };
    let max_destructive = first.max_destructive;
    for policy in &mut *policies {
        policy.max_destructive = max_destructive;
    }
    let people = EffectivePolicy {
        reviewers: other.reviewers,
        owned_folder: other.owned_folder,
        actors: other.actors,
        max_destructive,
        ..EffectivePolicy::default()
    };
    let is_same = |policy: &EffectivePolicy| {
        policy.reviewers == people.reviewers
            && policy.owned_folder == people.owned_folder
            && policy.actors == people.actors
    };
    let asks_nobody = people.reviewers.is_empty() && people.actors.is_empty();
    if !asks_nobody && !policies.iter().any(is_same) {
        policies.push(people);
    }
}

/// Combines the rules of the repository with those of a rule for stacks, which can only make them stricter.
fn narrowed(common: &PolicyConfig, own: StackPolicy) -> Result<EffectivePolicy, UserError> {
    let people = |own: Vec<String>, common: &[String]| if own.is_empty() { common.to_vec() } else { own };
    let (approvals, reviewers) = common.required_approvals(&own);
    let freeze = common.freeze.iter().chain(&own.freeze).map(parse_freeze);
    Ok(EffectivePolicy {
        approvals,
        freeze: freeze.collect::<Result<_, _>>()?,
        reviewers,
        owned_folder: None,
        actors: people(own.actors, &common.actors),
        max_destructive: own.max_destructive.or(common.max_destructive),
    })
}

fn parse_freeze(freeze: &config::FreezeConfig) -> Result<Freeze, UserError> {
    let read = |text: &str| {
        text.parse::<Timestamp>().map_err(|error| {
            UserError::from_error(ErrorKind::Config, error)
                .context(format!(
                    "policy.freeze: `{}` is not an RFC 3339 time",
                    text.escape_debug()
                ))
                .hint("write it as RFC 3339: `2026-12-23T00:00:00Z`")
        })
    };
    Ok(Freeze {
        from: read(&freeze.from)?,
        until: read(&freeze.until)?,
        reason: freeze.reason.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "version: 1
policy:
  approvals: 1
  reviewers: [acme/infra]
  actors: [acme/ops]
  max_destructive: 5
  freeze: [{from: '2026-12-23T00:00:00Z', until: '2027-01-02T00:00:00Z', reason: holidays}]
stacks:
- match: 'apps/pay/**'
  policy:
    approvals: 2
    reviewers: [acme/pay]
    max_destructive: 0
    freeze: [{from: '2026-11-27T00:00:00Z', until: '2026-11-30T00:00:00Z', reason: sale}]
- match: 'apps/blog/**'
  policy: {approvals: 0}
";

    fn rules(id: &str, folder: &str) -> EffectivePolicy {
        let config = Config::parse(RULES).unwrap();
        let folder = RepoPath::normalize(folder).unwrap();
        let none = OtherNames::default();
        let mut policies = effective_policies(&config, &id.parse().unwrap(), &folder, &none).unwrap();
        assert_eq!(policies.len(), 1);
        policies.remove(0)
    }

    #[test]
    fn a_rule_of_a_stack_narrows_those_of_the_repository() {
        let common = rules("shop/prod", "apps/shop/prod");
        assert_eq!((common.approvals, common.max_destructive), (1, Some(5)));
        assert_eq!(
            (common.reviewers, common.actors),
            (vec!["acme/infra".to_owned()], vec!["acme/ops".to_owned()])
        );
        assert_eq!(common.freeze.len(), 1);

        let pay = rules("pay/prod", "apps/pay/prod");
        assert_eq!((pay.approvals, pay.max_destructive), (2, Some(0)));
        assert_eq!(
            (pay.reviewers, pay.actors),
            (vec!["acme/pay".to_owned()], vec!["acme/ops".to_owned()])
        );
        let reasons: Vec<_> = pay.freeze.iter().map(|freeze| freeze.reason.clone()).collect();
        assert_eq!(reasons.len(), 2, "{reasons:?}");

        // No stack asks for less than the repository.
        assert_eq!(rules("blog/prod", "apps/blog/prod").approvals, 1);
    }

    /// For a stack that had other names: the approvals, the limit, and whom each policy asks.
    fn followed(text: &str, present: (&str, &str), known_as: &[&str]) -> (u32, Option<u32>, Vec<String>) {
        let config = Config::parse(text).unwrap();
        let folder = |path: &str| RepoPath::normalize(path).unwrap();
        let mut names = OtherNames::default();
        for name in known_as {
            match name.matches('/').count() {
                1 => drop(names.ids.insert(name.parse().unwrap())),
                _ => drop(names.folders.insert(folder(name))),
            }
        }
        let (id, place) = present;
        let policies = effective_policies(&config, &id.parse().unwrap(), &folder(place), &names).unwrap();
        let asked = policies.iter().map(|policy| {
            let owned = policy.owned_folder.as_ref().map(|folder| format!(" of {folder}"));
            policy.reviewers.join(",") + &owned.unwrap_or_default()
        });
        (
            policies[0].approvals,
            policies[0].max_destructive,
            asked.collect(),
        )
    }

    #[test]
    fn the_stricter_rule_of_two_names_counts() {
        let renamed = ("blog/prod", "apps/blog/prod");
        let (approvals, limit, asked) = followed(RULES, renamed, &["apps/pay/prod"]);
        assert_eq!((approvals, limit), (2, Some(0)));
        assert_eq!(asked, ["acme/infra", "acme/pay"]);
        // A pull request that picks the identity of a lenient rule does not leave the rule of the folder.
        let lenient = "policy: {reviewers: [acme/infra]}\nstacks:\n\
                       - {match: 'apps/*/prod', policy: {approvals: 2, max_destructive: 1}}\n\
                       - {match: 'sandbox/*', policy: {approvals: 0, reviewers: [eve], max_destructive: 99}}\n";
        let (approvals, limit, asked) = followed(lenient, ("sandbox/prod", "apps/shop/prod"), &[]);
        assert_eq!((approvals, limit), (2, Some(1)));
        assert_eq!(asked, ["eve", "acme/infra"]);
        // Nor those of the repository, if it had another name.
        let (.., asked) = followed(lenient, ("sandbox/x", "apps/shop/x"), &["shop/x"]);
        assert_eq!(asked, ["eve", "acme/infra"]);
        // A rule for an identity goes on to narrow those of the repository.
        let (.., asked) = followed(lenient, ("sandbox/x", "apps/shop/x"), &[]);
        assert_eq!(asked, ["eve"]);
        // A reviewed line ends the guards of a name.
        let ended = format!("{lenient}\n").replace(
            "policy: {reviewers",
            "policy: {ended_names: [{stacks: 'apps/shop/x', was: 'apps/old/prod', reason: r}], reviewers",
        );
        assert_eq!(
            followed(&ended, ("shop/x", "apps/shop/x"), &["apps/old/prod"]).0,
            0
        );
        assert_eq!(
            followed(lenient, ("shop/x", "apps/shop/x"), &["apps/old/prod"]).0,
            2
        );
    }

    #[test]
    fn the_code_owners_of_an_earlier_folder_are_asked_too() {
        let text = "policy: {reviewers: [CODEOWNERS]}\n";
        let (.., asked) = followed(
            text,
            ("shop/prod", "apps/store/prod"),
            &["apps/shop/prod", "old/prod"],
        );
        assert_eq!(asked, ["CODEOWNERS", "CODEOWNERS of apps/shop/prod"]);
    }

    #[test]
    fn a_freeze_without_a_time_is_an_error_and_never_no_freeze() {
        let text =
            "version: 1\npolicy: {freeze: [{from: tomorrow, until: '2027-01-02T00:00:00Z', reason: x}]}\n";
        let none = OtherNames::default();
        let rules =
            |config: Config| effective_policies(&config, &"a/b".parse().unwrap(), &RepoPath::root(), &none);
        let refused = Config::parse(text).map(rules);
        assert!(refused.is_err() || refused.unwrap().is_err());
    }
}

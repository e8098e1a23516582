//! Converts the rules of `konverge.yaml` for the policies.

use jiff::Timestamp;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, StackId},
};
use konverge_config::{self as config, Config};
use konverge_policy::{EffectivePolicy, Freeze};

/// The rules of the repository, narrowed by those of the stack: more approvals, its own people, additional
/// freezes. A removed stack keeps its rules: they decide whether it may be deleted.
///
/// # Errors
/// An invalid time in `policy.freeze`.
pub fn effective_policy(
    config: &Config,
    id: &StackId,
    folder: &RepoPath,
) -> Result<EffectivePolicy, UserError> {
    let common = &config.policy;
    let own = config.for_place(id, folder).policy;
    let people = |own: Vec<String>, common: &[String]| if own.is_empty() { common.to_vec() } else { own };
    let (approvals, reviewers) = config.required_approvals(&own);
    let freeze = common.freeze.iter().chain(&own.freeze).map(parse_freeze);
    Ok(EffectivePolicy {
        approvals,
        freeze: freeze.collect::<Result<_, _>>()?,
        reviewers,
        actors: people(own.actors, &common.actors),
        max_destructive: own.max_destructive.or(common.max_destructive),
    })
}

fn parse_freeze(freeze: &config::FreezeConfig) -> Result<Freeze, UserError> {
    let read = |text: &str| {
        text.parse::<Timestamp>().map_err(|error| {
            UserError::new(
                ErrorKind::Config,
                format!(
                    "policy.freeze: `{}` is not an RFC 3339 time: {error}",
                    text.escape_debug()
                ),
            )
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
        effective_policy(&config, &id.parse().unwrap(), &folder).unwrap()
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

    #[test]
    fn a_freeze_without_a_time_is_an_error_and_never_no_freeze() {
        let text =
            "version: 1\npolicy: {freeze: [{from: tomorrow, until: '2027-01-02T00:00:00Z', reason: x}]}\n";
        let rules = |config: Config| effective_policy(&config, &"a/b".parse().unwrap(), &RepoPath::root());
        let refused = Config::parse(text).map(rules);
        assert!(refused.is_err() || refused.unwrap().is_err());
    }
}

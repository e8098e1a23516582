//! The receivers of notifications: the events that each gets, and the validation of their settings.

use super::{
    Notify,
    config_problem::{Problem, problem},
    effective::matches,
    stack_glob::StackGlob,
};
use konverge_base::model::{NotifyEvent, NotifyKind, RepoPath, StackId};

impl Notify {
    /// Returns the event that this receiver gets for an event: the event itself, or a wider one. `None` if the receiver
    /// subscribed to neither; an empty list subscribes to all.
    pub fn event_for(&self, event: NotifyEvent) -> Option<NotifyEvent> {
        let asks = |event: &NotifyEvent| self.on.is_empty() || self.on.contains(event);
        Some(event).filter(asks).or_else(|| event.wider().filter(asks))
    }

    /// Returns true if this receiver gets the events of a stack.
    pub fn selects(&self, id: &StackId, folder: &RepoPath) -> bool {
        let pattern = self.pattern.as_deref();
        pattern.is_none_or(|pattern| matches(StackGlob::compile(pattern).as_ref(), id, folder))
    }

    /// Returns the first problem of the receiver, with a hint.
    pub(super) fn problem(&self) -> Option<Problem> {
        let (what, hint) = self
            .key_problem()
            .or_else(|| self.mail_problem())
            .or_else(|| self.mention_problem())
            .or_else(|| self.pattern_problem())?;
        problem(format!(
            "notify: the {} receiver in {} {what}",
            self.kind, self.url_env
        ))
        .hint(hint)
    }

    fn key_problem(&self) -> Option<Problem> {
        match (self.kind, &self.key_env) {
            (kind, None) if kind.needs_key() => {
                let hint = "switch on the signature at the receiver, and name the variable with its key in `key_env`";
                problem("has no `key_env`, so its messages cannot be signed").hint(hint)
            }
            (NotifyKind::Teams | NotifyKind::Wecom, Some(_)) => {
                problem("has a `key_env`, but this kind knows no signature")
                    .hint("remove `key_env`: the secret of this kind is the address itself")
            }
            _ => None,
        }
    }

    fn mail_problem(&self) -> Option<Problem> {
        if self.kind != NotifyKind::Email {
            let is_mail = self.from.is_some() || !self.to.is_empty();
            is_mail.then_some(())?;
            return problem("has `from` or `to`, which only `email` has").hint("remove them");
        }
        if self.from.is_none() || self.to.is_empty() {
            return problem("lacks `from` or `to`")
                .hint("write `from: konverge@example.com` and `to: [team@example.com]`");
        }
        let mut all = self.from.iter().chain(&self.to);
        let wrong = all.find(|address| !is_mail_address(address))?;
        problem(format!(
            "names `{}`, which is not a mail address",
            wrong.escape_debug()
        ))
        .hint("write the address alone, such as `team@example.com`")
    }

    fn mention_problem(&self) -> Option<Problem> {
        let cannot = matches!(self.kind, NotifyKind::Webhook | NotifyKind::Email);
        if cannot && !self.mention.is_empty() {
            return problem("has `mention`, but this kind mentions nobody").hint("remove `mention`");
        }
        let wrong = self.mention.iter().find(|name| match name.as_str() {
            "all" => self.kind == NotifyKind::Teams,
            // Teams identifies a mentioned person only by the sign-in name, which has the form of a mail address.
            name if self.kind == NotifyKind::Teams => !is_mail_address(name),
            name => !is_member(name),
        })?;
        let hint = match self.kind {
            NotifyKind::Slack => "write `all`, or the ids of members, such as `U024BE7LH`",
            NotifyKind::Teams => "write the sign-in names of members, such as `ada@example.com`",
            NotifyKind::Dingtalk => "write `all`, or mobile numbers or user ids of members",
            NotifyKind::Feishu => "write `all`, or the ids or mail addresses of members",
            _ => "write `all`, or the user ids of members",
        };
        problem(format!("mentions `{}`, which it cannot", wrong.escape_debug())).hint(hint)
    }

    fn pattern_problem(&self) -> Option<Problem> {
        let pattern = self.pattern.as_ref()?;
        let error = globset::Glob::new(pattern).err()?;
        problem(format!(
            "has `match: {}`, which is not a glob: {error}",
            pattern.escape_debug()
        ))
        .hint("write `appops/*/prod`")
    }
}

/// Returns true for a mail address without a display name.
fn is_mail_address(text: &str) -> bool {
    text.split_once('@')
        .is_some_and(|(user, host)| is_member(user) && is_member(host) && !host.contains('@'))
}

/// Returns true for a member id that no chat would read as markup.
fn is_member(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._@+-".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use konverge_base::model::{NotifyEvent, RepoPath};

    fn problem(receiver: &str) -> Option<String> {
        let parsed = Config::parse(&format!("notify:\n- {receiver}\n"));
        parsed.err().map(|error| error.to_string())
    }

    #[test]
    fn a_receiver_without_what_its_kind_needs_is_refused() {
        for (receiver, says) in [
            ("{kind: webhook, url_env: U}", "has no `key_env`"),
            ("{kind: dingtalk, url_env: U}", "has no `key_env`"),
            ("{kind: feishu, url_env: U}", "has no `key_env`"),
            ("{kind: teams, url_env: U, key_env: K}", "knows no signature"),
            ("{kind: slack, url_env: U, to: [a@b.example]}", "only `email` has"),
            (
                "{kind: email, url_env: U, to: [a@b.example]}",
                "lacks `from` or `to`",
            ),
            (
                "{kind: email, url_env: U, from: a@b.example}",
                "lacks `from` or `to`",
            ),
            (
                "{kind: email, url_env: U, from: a@b.example, to: [\"a@b.example\\nBcc: c@d.example\"]}",
                "is not a mail address",
            ),
            (
                "{kind: email, url_env: U, from: 'A <a@b.example>', to: [a@b.example]}",
                "is not a mail address",
            ),
            (
                "{kind: email, url_env: U, from: a@b, to: [a@b], mention: [all]}",
                "mentions nobody",
            ),
            (
                "{kind: teams, url_env: U, mention: [all]}",
                "mentions `all`, which it cannot",
            ),
            (
                "{kind: slack, url_env: U, mention: ['!here>']}",
                "mentions `!here>`",
            ),
            (
                "{kind: slack, url_env: U, match: 'a[', mention: [all]}",
                "is not a glob",
            ),
            ("{kind: pager, url_env: U}", "pager"),
        ] {
            let said = problem(receiver).unwrap_or_default();
            assert!(said.contains(says), "{receiver}: {said}");
        }
        for receiver in [
            "{kind: slack, url_env: U, mention: [all, U024BE7LH], match: 'appops/*/prod', lang: zh}",
            "{kind: teams, url_env: U, mention: [ada@example.com]}",
            "{kind: wecom, url_env: U}",
            "{kind: feishu, url_env: U, key_env: K, mention: [ou_7d8a6e6df7621556ce0d21922b676706]}",
            "{kind: email, url_env: U, from: ci@acme.example, to: [a@acme.example, b@acme.example]}",
        ] {
            assert_eq!(problem(receiver), None, "{receiver}");
        }
    }

    #[test]
    fn a_receiver_is_sent_what_it_asks_for() {
        let receiver = |on: &str| {
            let text = format!("notify: [{{kind: slack, url_env: U, on: [{on}], match: 'appops/*/prod'}}]");
            Config::parse(&text).unwrap().notify.remove(0)
        };
        let of = |on: &str, event| receiver(on).event_for(event);
        assert_eq!(of("", NotifyEvent::Denied), Some(NotifyEvent::Denied));
        assert_eq!(of("drift", NotifyEvent::Denied), None);
        // Before `denied` there was only `apply-failed`: who asked for that misses nothing.
        assert_eq!(
            of("apply-failed", NotifyEvent::Denied),
            Some(NotifyEvent::ApplyFailed)
        );
        assert_eq!(
            of("apply-failed, denied", NotifyEvent::Denied),
            Some(NotifyEvent::Denied)
        );
        assert_eq!(of("denied", NotifyEvent::ApplyFailed), None);
        let receiver = receiver("");
        let selects = |id: &str, folder: &str| {
            receiver.selects(&id.parse().unwrap(), &RepoPath::normalize(folder).unwrap())
        };
        assert!(selects("shop/prod", "appops/shop/prod"));
        assert!(!selects("shop/dev", "appops/shop/dev"));
    }
}

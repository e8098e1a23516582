//! The texts of a notification, in each language.

use konverge_base::model::{NotifyEvent, NotifyLanguage, apply_result::WaitReason};

/// Returns the event on one line. `stacks` is the name of a stack, or their number.
pub(crate) fn title(
    topic: NotifyEvent,
    detail: &NotifyDetail,
    language: NotifyLanguage,
    stacks: &str,
) -> String {
    match language {
        NotifyLanguage::En => english(topic, detail, stacks),
        NotifyLanguage::Zh => chinese(topic, detail, stacks),
    }
}

fn english(topic: NotifyEvent, detail: &NotifyDetail, stacks: &str) -> String {
    let (what, note) = match (detail, topic) {
        (NotifyDetail::Sample, _) => return "a test message; notifications work".to_owned(),
        (NotifyDetail::NotStarted(kind), _) => {
            return format!("apply failed before any stack was processed: {kind}");
        }
        (NotifyDetail::Restored(count), _) => (
            "differs from what was applied",
            Some(format!(" ({count} restored)")),
        ),
        (NotifyDetail::Findings(1), _) => ("a policy finding was overridden", None),
        (NotifyDetail::Findings(count), _) => {
            ("policy findings were overridden", Some(format!(" ({count})")))
        }
        (NotifyDetail::None, NotifyEvent::ApplyFailed) => ("the apply failed", None),
        (NotifyDetail::None, NotifyEvent::ApplyDone) => ("applied", None),
        (NotifyDetail::None, NotifyEvent::Drift) => ("differs from what was applied", None),
        (NotifyDetail::None, NotifyEvent::Unreviewed) => ("blocked: unreviewed change", None),
        (NotifyDetail::None, NotifyEvent::Denied) => ("blocked by a policy or a freeze", None),
        (NotifyDetail::None, NotifyEvent::Overridden) => ("a policy finding was overridden", None),
        (NotifyDetail::None, NotifyEvent::HookFailed) => ("a hook failed", None),
        (NotifyDetail::None, NotifyEvent::SecretRotated) => ("a secret has a new version", None),
        (NotifyDetail::Waits(WaitReason::Promotion), _) => ("waits for promotion", None),
        (NotifyDetail::Waits(WaitReason::Approval), _) => ("waits for an approval", None),
        (NotifyDetail::Waits(WaitReason::Resume), _) => ("waits until its rollout is resumed", None),
        (NotifyDetail::Waits(_), _) | (NotifyDetail::None, NotifyEvent::Waiting) => {
            ("waits for somebody", None)
        }
        (NotifyDetail::None, NotifyEvent::RolloutFailed) => ("the rollout stopped", None),
        (NotifyDetail::None, NotifyEvent::RolledBack) => ("rolled back to what was applied before", None),
    };
    format!("{what}: {stacks}{}", note.unwrap_or_default())
}

fn chinese(topic: NotifyEvent, detail: &NotifyDetail, stacks: &str) -> String {
    let (what, note) = match (detail, topic) {
        (NotifyDetail::Sample, _) => return "测试消息，通知可以送达".to_owned(),
        (NotifyDetail::NotStarted(kind), _) => return format!("部署失败，尚未处理任何 stack：{kind}"),
        (NotifyDetail::Restored(count), _) => {
            ("与上次部署的内容不一致", Some(format!("（已恢复 {count} 个）")))
        }
        (NotifyDetail::Findings(count), _) => ("策略检查结果被豁免", Some(format!("（{count} 项）"))),
        (NotifyDetail::None, NotifyEvent::ApplyFailed) => ("部署失败", None),
        (NotifyDetail::None, NotifyEvent::ApplyDone) => ("部署成功", None),
        (NotifyDetail::None, NotifyEvent::Drift) => ("与上次部署的内容不一致", None),
        (NotifyDetail::None, NotifyEvent::Unreviewed) => ("已阻止，变更未经评审", None),
        (NotifyDetail::None, NotifyEvent::Denied) => ("已被策略或冻结阻止", None),
        (NotifyDetail::None, NotifyEvent::Overridden) => ("策略检查结果被豁免", None),
        (NotifyDetail::None, NotifyEvent::HookFailed) => ("钩子执行失败", None),
        (NotifyDetail::None, NotifyEvent::SecretRotated) => ("密钥有新版本", None),
        (NotifyDetail::Waits(WaitReason::Promotion), _) => ("等待推进", None),
        (NotifyDetail::Waits(WaitReason::Approval), _) => ("等待批准", None),
        (NotifyDetail::Waits(WaitReason::Resume), _) => ("等待恢复发布流程", None),
        (NotifyDetail::Waits(_), _) | (NotifyDetail::None, NotifyEvent::Waiting) => ("等待人工处理", None),
        (NotifyDetail::None, NotifyEvent::RolloutFailed) => ("发布流程已停止", None),
        (NotifyDetail::None, NotifyEvent::RolledBack) => ("已回滚到之前部署的内容", None),
    };
    format!("{what}：{stacks}{}", note.unwrap_or_default())
}

/// Returns a text with the number of stacks.
pub(crate) fn count(language: NotifyLanguage, stacks: usize) -> String {
    match language {
        NotifyLanguage::En => format!("{stacks} stacks"),
        NotifyLanguage::Zh => format!("{stacks} 个 stack"),
    }
}

/// Returns a text with the number of stacks that are not listed by name.
pub(crate) fn more(language: NotifyLanguage, stacks: usize) -> String {
    match language {
        NotifyLanguage::En => format!("and {stacks} more"),
        NotifyLanguage::Zh => format!("另有 {stacks} 个"),
    }
}

/// Returns the text of the link to the run.
pub(crate) fn link(language: NotifyLanguage) -> &'static str {
    match language {
        NotifyLanguage::En => "the run",
        NotifyLanguage::Zh => "查看运行",
    }
}

/// The details of a notification besides its stacks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NotifyDetail {
    /// There are no details.
    #[default]
    None,
    /// The apply failed before it started, with an error of this kind.
    NotStarted(String),
    /// This many of the stacks with drift were restored.
    Restored(usize),
    /// This many findings were overridden.
    Findings(usize),
    /// All stacks wait for this reason.
    Waits(WaitReason),
    /// No event happened: somebody tests the receiver.
    Sample,
}

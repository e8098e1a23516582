//! The top-level help: the commands in groups, so that a reader finds those for daily work first.

use clap::Command;

/// The group of the commands that a CI job or an editor starts. The reference lists them, the help does not.
pub(super) const FOR_MACHINES: (&str, &[&str]) = ("Started by machines", &["ci", "lsp"]);

/// The groups with their commands, in the order of the help.
pub(super) const GROUPS: [(&str, &[&str]); 3] = [
    (
        "Every day",
        &[
            "list", "affected", "build", "check", "test", "watch", "set", "preview", "apply", "status",
            "drift",
        ],
    ),
    (
        "For the platform team",
        &[
            "init", "adopt", "demo", "doctor", "config", "graph", "health", "notify", "export", "models",
            "portal", "serve", "rollout",
        ],
    ),
    (
        "Maintenance",
        &[
            "freeze",
            "unfreeze",
            "destroy",
            "state",
            "cache",
            "kcl",
            "completions",
            "version",
        ],
    ),
];

/// The width of the column with the names of the commands.
const NAMES: usize = 12;

/// Returns the command line with its help in groups.
pub(super) fn grouped(root: Command) -> Command {
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for command in names.iter().filter_map(|name| root.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let aliases: Vec<_> = command.get_visible_aliases().collect();
            let aliases = if aliases.is_empty() {
                String::new()
            } else {
                format!(" [also: {}]", aliases.join(", "))
            };
            text.push_str(&format!("  {:NAMES$} {about}{aliases}\n", command.get_name()));
        }
        text.push('\n');
    }
    root.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_that_people_use_is_in_one_group() {
        let root = Cli::command();
        let commands = root.get_subcommands().filter(|command| !command.is_hide_set());
        let mut commands: Vec<_> = commands.map(Command::get_name).collect();
        let shown = GROUPS.iter().flat_map(|(_, names)| *names);
        let mut grouped: Vec<_> = shown.chain(FOR_MACHINES.1).copied().collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(commands, grouped);
        let help = super::grouped(root).render_help().to_string();
        assert!(
            help.contains("\nEvery day:\n  list") && help.contains("--repo"),
            "{help}"
        );
        for name in FOR_MACHINES.1 {
            assert!(!help.contains(&format!("\n  {name} ")), "{name}: {help}");
        }
    }
}

//! The page of all commands: the purpose and options of each, in the groups of the top-level help.

use clap::{Arg, Command};

use super::markdown_line::{line_of, sentence};
use crate::cli::help_groups::{FOR_MACHINES, GROUPS};

const INTRODUCTION: &str = "# Commands\n\nGenerated from the help by `konverge __reference commands`. \
                            `konverge COMMAND --help` and the man pages have examples too. An option that several commands \
                            have is described at the first one. [Exit codes](errors.md#exit-codes) are the same \
                            everywhere.\n\nEvery command takes:\n\n";

pub(super) fn page(mut root: Command) -> String {
    root.build();
    let mut page = CommandsPage {
        text: INTRODUCTION.to_owned(),
        described: Vec::new(),
    };
    for arg in root.get_arguments().filter(|arg| is_described(arg)) {
        let text = described(arg);
        page.text.push_str(&text);
        page.described.push(Described {
            text,
            command: root.get_name().to_owned(),
        });
    }
    for (title, names) in GROUPS.into_iter().chain([FOR_MACHINES]) {
        page.text.push_str(&format!("\n## {title}\n"));
        for command in names.iter().filter_map(|name| root.find_subcommand(name)) {
            page.describe(command, "konverge");
        }
    }
    page.text
}

/// Returns true if the page describes an option. `--help` and `--version` are left out: they do what everybody expects.
fn is_described(arg: &Arg) -> bool {
    !arg.is_hide_set() && arg.get_id() != "help" && arg.get_long() != Some("version")
}

struct CommandsPage {
    text: String,
    described: Vec<Described>,
}

/// An option with its help text, and the first command that has it.
struct Described {
    text: String,
    command: String,
}

impl CommandsPage {
    /// Describes a command and its subcommands.
    fn describe(&mut self, command: &Command, above: &str) {
        let name = format!("{above} {}", command.get_name());
        let level = "#".repeat(2 + name.matches(' ').count());
        let about = command.get_long_about().or(command.get_about());
        let mut about = sentence(&about.map(ToString::to_string).unwrap_or_default());
        let aliases: Vec<_> = command
            .get_visible_aliases()
            .map(|name| format!("`{name}`"))
            .collect();
        if !aliases.is_empty() {
            about.push_str(&format!(" Also {}.", aliases.join(", ")));
        }
        let positionals: Vec<_> = command.get_positionals().map(ToString::to_string).collect();
        if positionals.len() > 1 {
            about.push_str(&format!(
                " Usage: `{} {}`.",
                command.get_name(),
                positionals.join(" ")
            ));
        }
        self.text.push_str(&format!("\n{level} {name}\n\n{about}\n"));
        self.options(command, &name);
        let after = command.get_after_long_help().or(command.get_after_help());
        let after = without_examples(&after.map(ToString::to_string).unwrap_or_default());
        if !after.is_empty() {
            if after.lines().any(|line| line.starts_with("  ")) {
                self.text.push_str(&format!("\n```text\n{after}\n```\n"));
            } else {
                self.text.push_str(&format!("\n{}\n", line_of(&after)));
            }
        }
        for child in command.get_subcommands() {
            if !child.is_hide_set() && child.get_name() != "help" {
                self.describe(child, &name);
            }
        }
    }

    /// Writes the options of a command. An option that an earlier command has with the same text is only named, with a
    /// link.
    fn options(&mut self, command: &Command, name: &str) {
        let (mut own, mut elsewhere) = (String::new(), Vec::new());
        for arg in command.get_arguments().filter(|arg| is_described(arg)) {
            let text = described(arg);
            match self.described.iter().find(|option| option.text == text) {
                // Options that a command passes on to its subcommands are described once, at that command.
                Some(option) if name.starts_with(&option.command) && arg.is_global_set() => {}
                Some(option) => {
                    let anchor = option.command.replace(' ', "-");
                    let shown = match arg.get_long() {
                        Some(long) => format!("--{long}"),
                        None => arg.to_string(),
                    };
                    elsewhere.push(format!("[`{shown}`](#{anchor})"));
                }
                None => {
                    own.push_str(&text);
                    self.described.push(Described {
                        text,
                        command: name.to_owned(),
                    });
                }
            }
        }
        if !elsewhere.is_empty() {
            own.push_str(&format!("- also {}\n", elsewhere.join(", ")));
        }
        if !own.is_empty() {
            self.text.push_str(&format!("\n{own}"));
        }
    }
}

/// Formats an option as a list item: its names, what it does, its values, its default.
fn described(arg: &Arg) -> String {
    let mut text = match arg.get_short() {
        Some(short) if arg.get_long().is_some() => format!("- `-{short}`, `{arg}`: "),
        _ => format!("- `{arg}`: "),
    };
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
    text.push_str(&sentence(&help.unwrap_or_default()));
    if let Some(aliases) = arg.get_visible_aliases() {
        for alias in aliases {
            text.push_str(&format!(" Also `--{alias}`."));
        }
    }
    if arg.get_action().takes_values() {
        let default = arg.get_default_values().first().and_then(|value| value.to_str());
        let values = arg.get_possible_values();
        let (mut plain, mut explained) = (Vec::new(), Vec::new());
        for value in values
            .iter()
            .filter(|value| !value.is_hide_set() && !arg.is_hide_possible_values_set())
        {
            let mark = if default == Some(value.get_name()) {
                " (default)"
            } else {
                ""
            };
            let name = format!("`{}`{mark}", value.get_name());
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            if help.is_empty() {
                plain.push(name)
            } else {
                explained.push(format!("{name}: {}", sentence(&help)))
            }
        }
        if !plain.is_empty() {
            explained.insert(0, format!("{}.", plain.join(", ")));
        }
        match (explained.is_empty(), default) {
            (true, Some(default)) => text.push_str(&format!(" Default: `{default}`.")),
            (true, None) => {}
            (false, _) => text.push_str(&format!(" {}", explained.join(" "))),
        }
    }
    if arg.is_required_set() && !arg.is_positional() {
        text.push_str(" Required.");
    }
    text + "\n"
}

/// Returns the text of a help without its examples.
fn without_examples(help: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut in_examples = false;
    for line in help.lines() {
        in_examples = line == "Examples:" || in_examples && line.starts_with("  ");
        if !in_examples {
            lines.push(line);
        }
    }
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// Each option of each command is in its section: with its text, or with a link to the section that has the text.
    #[test]
    fn every_option_stands_in_the_section_of_its_command() {
        let page = page(Cli::command());
        let mut root = Cli::command();
        root.build();
        let mut seen = 0;
        let mut commands: Vec<(String, Command)> = vec![("konverge".to_owned(), root)];
        while let Some((name, command)) = commands.pop() {
            for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
                if child.get_name() != "help" {
                    commands.push((format!("{name} {}", child.get_name()), child.clone()));
                }
            }
            let Some((_, section)) = page.split_once(&format!("# {name}\n")) else {
                assert_eq!(name, "konverge");
                continue;
            };
            let section = section.split("\n#").next().unwrap_or_default();
            let own = command
                .get_arguments()
                .filter(|arg| is_described(arg) && !arg.is_global_set());
            for arg in own {
                seen += 1;
                let shown = arg.get_long().map_or(arg.to_string(), |long| format!("--{long}"));
                assert!(section.contains(&shown), "{name}: {shown}: {section}");
            }
        }
        assert!(seen > 100, "{seen} options");
    }
}

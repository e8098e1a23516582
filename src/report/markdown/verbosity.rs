//! How much is shown: the steps by which a comment gives way when it has no room, in the order in which a reader would
//! miss it least.

use crate::report::diff::DiffContext;

/// One step of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verbosity {
    /// Stacks without changes, by name.
    pub unchanged: bool,
    /// What stands around a change.
    pub context: DiffContext,
    /// All stacks of a group by name; otherwise the first few.
    pub group_stacks: bool,
    /// Diffs of updates; otherwise the paths alone.
    pub diffs: bool,
    /// What of the stacks' own folds is shown.
    pub folds: Folds,
    /// How the table is laid out.
    pub table: Table,
}

/// What of the stacks' own folds is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folds {
    /// All of them, or the step does not fit.
    All,
    /// As many whole ones as fit.
    Fitting,
}

/// How the table is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// A row a stack.
    Stacks,
    /// A row a project.
    Projects,
    /// As many projects as fit.
    Fitting,
}

/// From the most to the least.
pub(super) const LADDER: [Verbosity; 9] = {
    const FULL: Verbosity = Verbosity {
        unchanged: true,
        context: DiffContext::Tree(3),
        group_stacks: true,
        diffs: true,
        folds: Folds::All,
        table: Table::Stacks,
    };
    const SHORT: Verbosity = Verbosity {
        unchanged: false,
        context: DiffContext::Path,
        group_stacks: false,
        ..FULL
    };
    [
        FULL,
        Verbosity {
            unchanged: false,
            ..FULL
        },
        Verbosity {
            unchanged: false,
            context: DiffContext::Tree(1),
            ..FULL
        },
        Verbosity {
            unchanged: false,
            context: DiffContext::Path,
            ..FULL
        },
        SHORT,
        Verbosity {
            diffs: false,
            ..SHORT
        },
        Verbosity {
            folds: Folds::Fitting,
            ..SHORT
        },
        Verbosity {
            diffs: false,
            folds: Folds::Fitting,
            table: Table::Projects,
            ..SHORT
        },
        Verbosity {
            diffs: false,
            folds: Folds::Fitting,
            table: Table::Fitting,
            ..SHORT
        },
    ]
};

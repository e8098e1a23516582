//! [`Holder`]: the holder of a lease.

use std::time::Duration;

use jiff::Timestamp;

use super::DocumentWriter;
use konverge_base::model::StackId;

/// The holder of a lease, as another run sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    /// The id of the lease, for `konverge state unlock`.
    pub id: String,
    /// The epoch of the lease, which is the fencing token.
    pub epoch: u64,
    /// The run that holds the lease.
    pub writer: DocumentWriter,
    /// The time at which the lease was taken, by the holder's clock.
    pub since: Timestamp,
    /// The term: a holder that does not renew for this long may be taken over.
    pub term: Duration,
    /// Time for which this process has seen no renewal, by its own clock.
    pub quiet: Duration,
}

impl Holder {
    /// Describes if the holder is alive, and when its lease expires.
    pub fn renewal_text(&self) -> String {
        format!(
            "no renewal for {} s; taken over after {} s without a renewal",
            self.quiet.as_secs(),
            self.term.as_secs()
        )
    }

    /// Describes how to end the lease by hand.
    pub fn way_out(&self, stack: &StackId) -> String {
        format!(
            "if that run is dead: `konverge state unlock {stack} --lease {} --reason TEXT`",
            self.id
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_shown_with_its_silence_its_term_and_the_way_to_end_its_lease() {
        let holder = Holder {
            id: "3-abcd".to_owned(),
            epoch: 3,
            writer: DocumentWriter {
                run: "https://ci.example/1".to_owned(),
                actor: "ada".to_owned(),
            },
            since: Timestamp::UNIX_EPOCH,
            term: Duration::from_secs(60),
            quiet: Duration::from_secs(7),
        };
        assert_eq!(
            holder.renewal_text(),
            "no renewal for 7 s; taken over after 60 s without a renewal"
        );
        assert_eq!(
            holder.way_out(&"shop/prod".parse().unwrap()),
            "if that run is dead: `konverge state unlock shop/prod --lease 3-abcd --reason TEXT`"
        );
    }
}

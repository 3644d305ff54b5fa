//! Where sessions are counted, and under which name they fail.

use proptest::prelude::*;
use proto::{
    frame::{ErrorCode, Outcome},
    ids::PlanIndex,
};

use crate::{
    ledger::{FailureCause, Finish, Funnel, LedgerEntry, LedgerEvent, RetriedRow, SourceId, book::Book, merge::WorkerLoss},
    plan::{EndKind, Expect, Protocol},
};

const SOURCE: SourceId = SourceId { worker: 1, shard: 0 };

fn step(book: &mut Book, index: u64, event: LedgerEvent) {
    book.apply(SOURCE, LedgerEntry { index: PlanIndex(index), at_us: 10, event });
}

fn scheduled(index: u64) -> LedgerEvent {
    LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::Graceful, client_ref: format!("run-{index}") }
}

fn accepted(index: u64) -> LedgerEvent {
    LedgerEvent::Accepted { session_id: format!("s{index}"), backend_id: "b".into(), boot_id: "x".into() }
}

fn dial(book: &mut Book, index: u64) {
    step(book, index, scheduled(index));
    step(book, index, LedgerEvent::Attempted { backend: Some(0), report_age_us: None });
}

fn establish(book: &mut Book, index: u64) {
    dial(book, index);
    step(book, index, accepted(index));
}

fn lost(planned: bool) -> WorkerLoss {
    WorkerLoss { worker: 1, at_us: 20, planned, known_to_us: [(0, 20)].into() }
}

fn total(book: &Book) -> Funnel {
    let total = book.funnels().total();
    assert_eq!(total.contradictions(), Vec::<String>::new());
    assert_eq!(book.funnels().errors(None).values().sum::<u64>(), total.sessions_failed());
    total
}

fn errors(book: &Book) -> Vec<(String, u64)> {
    book.funnels().errors(None).into_iter().collect()
}

/// k6 885, artillery 1265, k6 333/652: what was asked, tried and got is shown and adds up.
#[test]
fn each_session_lands_in_one_place() {
    let mut book = Book::default();
    let finishes = [
        Finish::Goodbye(Outcome::Completed),
        Finish::Forced(EndKind::TcpRst),
        Finish::ByServer(Outcome::Drained),
        Finish::Lost(FailureCause::Reset),
        Finish::Lost(FailureCause::ServerError(ErrorCode::BadAudio)),
        Finish::ByServer(Outcome::TimedOut),
    ];
    for (n, finish) in finishes.into_iter().enumerate() {
        establish(&mut book, n as u64);
        step(&mut book, n as u64, LedgerEvent::Ended { finish });
    }
    step(&mut book, 10, scheduled(10));
    step(&mut book, 10, LedgerEvent::Failed { cause: FailureCause::TooManyFiles });
    dial(&mut book, 11);
    step(&mut book, 11, LedgerEvent::Failed { cause: FailureCause::ConnectionRefused });
    step(&mut book, 12, scheduled(12));
    step(&mut book, 12, LedgerEvent::Failed { cause: FailureCause::Aborted });
    establish(&mut book, 13);
    dial(&mut book, 14);
    step(&mut book, 15, scheduled(15));
    let total = total(&book);
    assert_eq!((total.requested, total.attempted, total.established), (12, 9, 7));
    assert_eq!((total.completed, total.interrupted, total.failed, total.live), (1, 2, 3, 1));
    assert_eq!((total.not_attempted, total.not_established, total.aborted), (2, 1, 1));
    assert_eq!((total.dialling, total.waiting, total.sessions_failed()), (1, 1, 5));
    let expected = ["connection_refused", "ended_timed_out", "reset", "server_error:bad_audio", "too_many_files"];
    assert_eq!(errors(&book), expected.map(|e| (e.to_owned(), 1)));
    assert_eq!(book.funnels().scenario(0), total);
    assert_eq!(book.funnels().scenario(1), Funnel::default());
}

#[test]
fn a_cut_that_looks_like_a_loss_is_an_interruption_and_a_broken_goodbye_is_not() {
    for (kind, failed) in [(EndKind::TcpRst, 0), (EndKind::Graceful, 1)] {
        let mut book = Book::default();
        establish(&mut book, 1);
        step(&mut book, 1, LedgerEvent::Forced { kind });
        step(&mut book, 1, LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Eof) });
        let total = total(&book);
        assert_eq!((total.interrupted, total.failed), (1 - failed, failed), "{kind:?}");
    }
}

#[test]
fn what_a_scenario_is_for_is_no_error() {
    for expect in [None, Some(Expect::Rejected), Some(Expect::TimedOut)] {
        let mut book = Book::new(vec![expect]);
        dial(&mut book, 1);
        step(&mut book, 1, LedgerEvent::Failed { cause: FailureCause::Rejected });
        establish(&mut book, 2);
        step(&mut book, 2, LedgerEvent::Ended { finish: Finish::ByServer(Outcome::TimedOut) });
        let total = total(&book);
        let (refused, timed_out) = (expect == Some(Expect::Rejected), expect == Some(Expect::TimedOut));
        assert_eq!((total.refused_as_planned, total.not_established), (u64::from(refused), 1));
        assert_eq!((total.interrupted, total.failed), (u64::from(timed_out), u64::from(!timed_out)));
        assert_eq!(total.sessions_failed(), 2 - u64::from(refused) - u64::from(timed_out));
    }
}

/// The request may have arrived, and where it is the start the backend may have counted the session; where it is not, a start was never sent.
#[test]
fn an_upgrade_without_an_answer_is_in_doubt_where_it_is_the_start() {
    for (at_upgrade, cause, doubt) in [
        (true, FailureCause::ConnectTimeout, true),
        (true, FailureCause::Reset, true),
        (true, FailureCause::Eof, true),
        (true, FailureCause::ConnectionRefused, false),
        (true, FailureCause::Rejected, false),
        (false, FailureCause::ConnectTimeout, false),
    ] {
        let mut book = Book::default().starting_at_upgrade(vec![at_upgrade]);
        dial(&mut book, 1);
        step(&mut book, 1, LedgerEvent::Failed { cause });
        assert!(book.sessions.values().all(|session| session.in_doubt() == doubt), "{at_upgrade} {cause:?}");
    }
}

#[test]
fn a_planned_kill_of_a_worker_is_no_failure_and_any_other_loss_is() {
    for planned in [true, false] {
        let mut book = Book::default();
        establish(&mut book, 1);
        dial(&mut book, 2);
        step(&mut book, 3, scheduled(3));
        establish(&mut book, 4);
        step(&mut book, 4, LedgerEvent::Ended { finish: Finish::Goodbye(Outcome::Completed) });
        book.worker_lost(lost(planned));
        let total = total(&book);
        assert_eq!((total.live, total.dialling, total.waiting, total.completed), (0, 0, 0, 1));
        assert_eq!((total.not_attempted, total.not_established), (1, 1));
        assert_eq!((total.interrupted, total.failed), if planned { (1, 0) } else { (0, 1) });
        assert_eq!(errors(&book), if planned { vec![] } else { vec![("worker_lost".to_owned(), 3)] });
    }
}

#[test]
fn a_planned_kill_of_a_backend_is_no_failure_of_its_own_sessions() {
    let mut book = Book::default();
    establish(&mut book, 1);
    dial(&mut book, 2);
    establish(&mut book, 3);
    step(&mut book, 4, scheduled(4));
    step(&mut book, 4, LedgerEvent::Attempted { backend: Some(1), report_age_us: None });
    let boot = book.boot("x");
    book.backend_killed(0, boot, 20);
    // What the driver sees of it comes later: a break, a goodbye that had been under way, and a dial that came to nothing.
    step(&mut book, 1, LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Reset) });
    step(&mut book, 3, LedgerEvent::Ended { finish: Finish::Goodbye(Outcome::Completed) });
    step(&mut book, 2, LedgerEvent::Failed { cause: FailureCause::Reset });
    // Another backend was not killed, and a session that begins after the kill is not spared.
    step(&mut book, 4, LedgerEvent::Failed { cause: FailureCause::Reset });
    dial(&mut book, 5);
    step(&mut book, 5, LedgerEvent::Failed { cause: FailureCause::ConnectionRefused });
    let total = total(&book);
    assert_eq!((total.completed, total.interrupted, total.failed), (1, 1, 0));
    assert_eq!((total.not_established, total.aborted), (3, 1));
    assert_eq!(errors(&book), [("connection_refused".to_owned(), 1), ("reset".to_owned(), 1)]);
    assert!(book.irregular().is_empty(), "{:?}", book.irregular());
}

/// A session that is refused at one backend and taken by another is one session, attempted once.
#[test]
fn a_retried_session_is_counted_once() {
    let mut book = Book::default();
    dial(&mut book, 1);
    for cause in [FailureCause::Rejected, FailureCause::Reset] {
        step(&mut book, 1, LedgerEvent::Retried { cause });
        let total = total(&book);
        assert_eq!((total.attempted, total.dialling), (1, 1));
        step(&mut book, 1, LedgerEvent::Attempted { backend: Some(1), report_age_us: None });
    }
    step(&mut book, 1, accepted(1));
    step(&mut book, 1, LedgerEvent::Ended { finish: Finish::Goodbye(Outcome::Completed) });
    let total = total(&book);
    assert_eq!((total.requested, total.attempted, total.established, total.completed), (1, 1, 1, 1));
    let row = |cause, backend| RetriedRow { cause, backend: Some(backend), count: 1 };
    assert_eq!(book.retries().rows(), [row(FailureCause::Rejected, 0), row(FailureCause::Reset, 1)]);
    assert!(book.irregular().is_empty(), "{:?}", book.irregular());
}

#[test]
fn steps_of_a_retry_out_of_order_are_a_fault() {
    let mut book = Book::default();
    step(&mut book, 1, scheduled(1));
    step(&mut book, 1, LedgerEvent::Retried { cause: FailureCause::Rejected });
    assert_eq!(book.irregular().len(), 1);
    dial(&mut book, 2);
    step(&mut book, 2, LedgerEvent::Attempted { backend: Some(1), report_age_us: None });
    assert_eq!(book.irregular().len(), 2);
    step(&mut book, 2, LedgerEvent::Retried { cause: FailureCause::Rejected });
    step(&mut book, 2, accepted(2));
    assert_eq!(book.irregular().len(), 3);
    assert_eq!(total(&book).dialling, 1);
}

/// The driver's own balancer refuses: never dialled, and what `expect: rejected` is for; dialled before or not.
#[test]
fn no_backend_is_a_refusal() {
    for expect in [None, Some(Expect::Rejected)] {
        let mut book = Book::new(vec![expect]);
        step(&mut book, 1, scheduled(1));
        step(&mut book, 1, LedgerEvent::Failed { cause: FailureCause::NoBackend });
        dial(&mut book, 2);
        step(&mut book, 2, LedgerEvent::Retried { cause: FailureCause::Rejected });
        step(&mut book, 2, LedgerEvent::Failed { cause: FailureCause::NoBackend });
        let total = total(&book);
        let planned = if expect.is_some() { 2 } else { 0 };
        assert_eq!((total.not_attempted, total.not_established, total.refused_as_planned), (1, 1, planned));
        assert_eq!(errors(&book), if planned > 0 { vec![] } else { vec![("no_backend".to_owned(), 2)] });
        assert!(book.sessions.values().all(|session| !session.in_doubt()));
    }
}

/// What the plan kills although it was to end otherwise is dropped: no failure, and no good end.
#[test]
fn sessions_that_were_to_end_otherwise_are_dropped_by_a_kill() {
    let mut book = Book::default();
    establish(&mut book, 1);
    let waits = LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::KillBackend, client_ref: "run-2".into() };
    step(&mut book, 2, waits);
    step(&mut book, 2, LedgerEvent::Attempted { backend: Some(0), report_age_us: None });
    step(&mut book, 2, accepted(2));
    let boot = book.boot("x");
    book.backend_killed(0, boot, 20);
    let total = total(&book);
    assert_eq!((total.interrupted, total.dropped, total.completed, total.sessions_failed()), (2, 1, 0, 0));
}

#[test]
fn contradictions_are_named() {
    let wrong = Funnel { requested: 3, attempted: 2, ..Funnel::default() };
    let found = wrong.contradictions();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], "requested is 3, but attempted + not attempted + waiting is 2");
}

proptest! {
    #[test]
    fn any_order_of_steps_adds_up(steps in prop::collection::vec((0..6u64, 0..13u8), 0..200), front in any::<bool>()) {
        let mut book = Book::new(vec![Some(Expect::Rejected)]);
        if front {
            book = book.behind_front();
        }
        let mut retries = 0;
        for (index, kind) in steps {
            let event = match kind {
                0 => scheduled(index),
                1 => LedgerEvent::Attempted { backend: Some(0), report_age_us: None },
                2 => accepted(index),
                3 => LedgerEvent::Forced { kind: EndKind::Cancel },
                4 => LedgerEvent::Ended { finish: Finish::Goodbye(Outcome::Completed) },
                5 => LedgerEvent::Failed { cause: FailureCause::Rejected },
                6 => LedgerEvent::Failed { cause: FailureCause::Eof },
                7 => LedgerEvent::Retried { cause: FailureCause::Rejected },
                8 => LedgerEvent::Retried { cause: FailureCause::Reset },
                9 => LedgerEvent::Failed { cause: FailureCause::NoBackend },
                10 => LedgerEvent::Attempted { backend: None, report_age_us: None },
                11 => {
                    book.worker_lost(lost(index % 2 == 0));
                    continue;
                }
                _ => {
                    let boot = book.boot("x");
                    book.backend_killed(0, boot, 20);
                    continue;
                }
            };
            step(&mut book, index, event);
            let total = total(&book);
            prop_assert!(book.retries().total() >= retries);
            retries = book.retries().total();
            prop_assert!(total.requested >= total.attempted && total.attempted >= total.established);
        }
    }
}

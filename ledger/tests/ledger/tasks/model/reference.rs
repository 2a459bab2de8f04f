//! What tasks must be like, in memory: rules only, no tables.

use std::collections::BTreeMap;

use steady_ledger::Status;

/// An answer, or the name of an error.
pub(super) type Seen<T> = Result<T, String>;
/// The inputs of a task, and the answers so far.
pub(super) type Answers = BTreeMap<u8, Option<u8>>;

#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Complete,
    Fail,
    Cancel,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Resolved {
    Complete,
    Fail,
    Cancel,
    Requeue,
}

/// A rule that the model can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    AnyPrincipal,
    ArgumentsIgnored,
    CapCountsTheDead,
    DoubtRuns,
    EndChanges,
    ExpiredShown,
    ExpiredWorks,
    LastAnswerWins,
    LateWorkerWrites,
    ReleaseCounts,
    StepRepeats,
    UnaskedCancel,
    WaitingIsClaimed,
}

impl Bug {
    pub(super) const ALL: [Self; 13] = [
        Self::AnyPrincipal,
        Self::ArgumentsIgnored,
        Self::CapCountsTheDead,
        Self::DoubtRuns,
        Self::EndChanges,
        Self::ExpiredShown,
        Self::ExpiredWorks,
        Self::LastAnswerWins,
        Self::LateWorkerWrites,
        Self::ReleaseCounts,
        Self::StepRepeats,
        Self::UnaskedCancel,
        Self::WaitingIsClaimed,
    ];
}

#[derive(Clone)]
struct Task {
    principal: u8,
    status: Status,
    cancel: bool,
    step: u64,
    owner: Option<u8>,
    epoch: u32,
    /// Leases that ran out.
    losses: u32,
    claimable: i64,
    external: bool,
    doubt: bool,
    inputs: Answers,
    expires: i64,
    removed: bool,
}

pub(super) struct Model {
    pub(super) now: i64,
    /// Effects of steps that were stored.
    pub(super) effects: i64,
    lease: i64,
    ttl: i64,
    cap: usize,
    bug: Option<Bug>,
    tasks: Vec<Task>,
    /// Arguments and task of each principal's key.
    keys: BTreeMap<(u8, u8), (i64, usize)>,
    /// Task and epoch of each worker's last lease.
    leases: BTreeMap<u8, (usize, u32)>,
}

fn refused<T>(name: &str) -> Seen<T> {
    Err(name.to_owned())
}

impl Model {
    pub(super) fn new(now: i64, lease: i64, ttl: i64, cap: usize, bug: Option<Bug>) -> Self {
        let (tasks, keys, leases) = (vec![], BTreeMap::new(), BTreeMap::new());
        Self { now, effects: 0, lease, ttl, cap, bug, tasks, keys, leases }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(super) fn create(&mut self, principal: u8, key: u8, units: i64) -> Seen<(bool, usize)> {
        if let Some((first, place)) = self.keys.get(&(principal, key)) {
            return match () {
                () if *first != units && !self.has(Bug::ArgumentsIgnored) => refused("Mismatch"),
                () if self.tasks[*place].expires <= self.now => refused("ResultExpired"),
                () => Ok((true, *place)),
            };
        }
        let before = self.tasks.clone();
        self.expire_leases();
        self.collect();
        let counts = |task: &&Task| {
            let held = task.expires > self.now || task.external || task.claimable > self.now;
            task.principal == principal
                && !task.removed
                && (!task.status.is_terminal() && held || self.has(Bug::CapCountsTheDead))
        };
        if self.tasks.iter().filter(counts).count() >= self.cap {
            self.tasks = before;
            return refused(&format!("TooMany {{ limit: {} }}", self.cap));
        }
        self.tasks.push(Task {
            principal,
            status: Status::Working,
            cancel: false,
            step: 0,
            owner: None,
            epoch: 0,
            losses: 0,
            claimable: self.now,
            external: false,
            doubt: false,
            inputs: Answers::new(),
            expires: self.now + self.ttl,
            removed: false,
        });
        let place = self.tasks.len() - 1;
        self.keys.insert((principal, key), (units, place));
        Ok((false, place))
    }

    fn of_client(&mut self, by: u8, place: usize) -> Seen<&mut Task> {
        let (any, late, now) = (self.has(Bug::AnyPrincipal), self.has(Bug::ExpiredShown), self.now);
        let is_seen = |task: &&mut Task| !task.removed && (any || task.principal == by) && (late || task.expires > now);
        self.tasks.get_mut(place).filter(is_seen).map_or_else(|| refused("Unknown"), Ok)
    }

    pub(super) fn shown(&mut self, by: u8, place: usize) -> Seen<(Status, bool, u64, Vec<u8>)> {
        let task = self.of_client(by, place)?;
        let open = task.inputs.iter().filter(|(_, answer)| answer.is_none()).map(|(input, _)| *input);
        Ok((task.status, task.cancel, task.step, open.collect()))
    }

    pub(super) fn cancel(&mut self, by: u8, place: usize) -> Seen<()> {
        let task = self.of_client(by, place)?;
        task.cancel |= !task.status.is_terminal();
        Ok(())
    }

    pub(super) fn update(&mut self, by: u8, place: usize, input: u8, answer: u8) -> Seen<()> {
        let last_wins = self.has(Bug::LastAnswerWins);
        let task = self.of_client(by, place)?;
        if let Some(stored) = task.inputs.get_mut(&input)
            && (stored.is_none() || last_wins)
        {
            *stored = Some(answer);
            if task.inputs.values().all(Option::is_some) {
                task.status = Status::Working;
            }
        }
        Ok(())
    }

    pub(super) fn expire_leases(&mut self) -> usize {
        if self.has(Bug::DoubtRuns) {
            return 0;
        }
        let mut count = 0;
        for task in &mut self.tasks {
            if !task.removed && task.external && !task.doubt && task.claimable <= self.now {
                (task.doubt, task.owner) = (true, None);
                task.epoch += 1;
                task.losses += 1;
                count += 1;
            }
        }
        count
    }

    pub(super) fn collect(&mut self) -> usize {
        let mut count = 0;
        for task in &mut self.tasks {
            let idle = task.status.is_terminal() || !task.external && task.claimable <= self.now;
            if !task.removed && task.expires <= self.now && idle {
                task.removed = true;
                count += 1;
            }
        }
        count
    }

    pub(super) fn claim(&mut self, worker: u8) -> Option<(usize, u64, u32, bool, Answers)> {
        self.expire_leases();
        self.collect();
        let waits = |task: &Task| match task.status {
            Status::Working => true,
            Status::InputRequired => task.cancel || self.has(Bug::WaitingIsClaimed),
            Status::Completed | Status::Failed | Status::Cancelled => false,
        };
        let free = |task: &Task| {
            !task.removed
                && (!task.external || self.has(Bug::DoubtRuns))
                && task.claimable <= self.now
                && task.expires > self.now
        };
        let places = (0..self.tasks.len()).filter(|place| free(&self.tasks[*place]) && waits(&self.tasks[*place]));
        let place = places.min_by_key(|place| self.tasks[*place].claimable)?;
        let counts = self.has(Bug::ReleaseCounts);
        let task = &mut self.tasks[place];
        task.losses += u32::from(task.owner.is_some() || counts && task.epoch > 0);
        task.owner = Some(worker);
        task.epoch += 1;
        task.claimable = self.now + self.lease;
        self.leases.insert(worker, (place, task.epoch));
        Some((place, task.step, task.losses, task.cancel, task.inputs.clone()))
    }

    /// The task of a worker, if there is work left in it: whose life is over has none but to close an external step.
    fn living(&mut self, worker: u8) -> Option<Seen<&mut Task>> {
        let (now, works) = (self.now, self.has(Bug::ExpiredWorks));
        let lives = move |task: &Task| task.expires > now || task.external || works;
        Some(self.alive(worker)?.and_then(|task| if lives(task) { Ok(task) } else { refused("LeaseLost") }))
    }

    /// The task of a worker. None if it never had one.
    fn alive(&mut self, worker: u8) -> Option<Seen<&mut Task>> {
        let (place, epoch) = *self.leases.get(&worker)?;
        let (late, changes) = (self.has(Bug::LateWorkerWrites), self.has(Bug::EndChanges));
        let task = &mut self.tasks[place];
        let holds = task.owner == Some(worker) && task.epoch == epoch;
        Some(if task.removed || !holds && !late {
            refused("LeaseLost")
        } else if task.status.is_terminal() && !changes {
            refused(&format!("Over({:?})", task.status))
        } else {
            Ok(task)
        })
    }

    pub(super) fn checkpoint(&mut self, worker: u8, step: u64) -> Option<Seen<(bool, bool, Answers)>> {
        let (until, repeats) = (self.now + self.lease, self.has(Bug::StepRepeats));
        Some(self.living(worker)?.map(|task| {
            let stored = step > task.step || repeats && step == task.step;
            task.step = task.step.max(step);
            task.claimable = until;
            (task.cancel, stored, task.inputs.clone())
        }))
        .inspect(|answer| self.effects += i64::from(matches!(answer, Ok((_, true, _)))))
    }

    pub(super) fn end(&mut self, worker: u8, end: End) -> Option<Seen<()>> {
        let unasked = self.has(Bug::UnaskedCancel);
        Some(self.alive(worker)?.and_then(|task| {
            if matches!(end, End::Cancel) && !task.cancel && !unasked {
                return refused("NotRequested");
            }
            finish(task, end);
            Ok(())
        }))
    }

    pub(super) fn ask(&mut self, worker: u8, input: u8) -> Option<Seen<()>> {
        let until = self.now + self.lease;
        Some(self.living(worker)?.and_then(|task| {
            if task.inputs.contains_key(&input) {
                return refused("InputKeyUsed");
            }
            task.inputs.insert(input, None);
            (task.status, task.claimable) = (Status::InputRequired, until);
            Ok(())
        }))
    }

    pub(super) fn external(&mut self, worker: u8, open: bool) -> Option<Seen<()>> {
        let until = self.now + self.lease;
        Some(self.living(worker)?.map(|task| (task.external, task.claimable) = (open, until)))
    }

    pub(super) fn release(&mut self, worker: u8) -> Option<Seen<()>> {
        let now = self.now;
        Some(self.alive(worker)?.map(|task| (task.owner, task.claimable) = (None, now)))
    }

    pub(super) fn resolve(&mut self, place: usize, resolved: Resolved) -> Seen<()> {
        let Some(task) = self.tasks.get_mut(place).filter(|task| !task.removed) else {
            return refused("Unknown");
        };
        if !task.doubt {
            return refused("NotInDoubt");
        }
        if matches!(resolved, Resolved::Cancel) && !task.cancel {
            return refused("NotRequested");
        }
        (task.doubt, task.external) = (false, false);
        match resolved {
            Resolved::Complete => finish(task, End::Complete),
            Resolved::Fail => finish(task, End::Fail),
            Resolved::Cancel => finish(task, End::Cancel),
            Resolved::Requeue => {}
        }
        Ok(())
    }
}

fn finish(task: &mut Task, end: End) {
    task.status = match end {
        End::Complete => Status::Completed,
        End::Fail => Status::Failed,
        End::Cancel => Status::Cancelled,
    };
    task.inputs.clear();
    (task.external, task.doubt) = (false, false);
}

use super::*;

fn granted(budget: &RetryBudget, percent: u32, requests: u64, now: Moment, tries: usize) -> usize {
    let spend = |_: &usize| budget.spend(percent, requests, now) == BudgetVerdict::Granted;
    (0..tries).filter(spend).count()
}

#[test]
fn a_budget_allows_its_share_of_the_requests_and_ten_a_second() {
    let start = Moment::now();
    let budget = RetryBudget::new(start);
    assert_eq!(granted(&budget, 20, 0, start, 50), 10, "ten without any request");
    assert_eq!(granted(&budget, 20, 1000, start, 500), 200, "a fifth of the requests");
    assert_eq!(granted(&budget, 20, 1000, start, 5), 0, "exhausted");
    assert_eq!(granted(&budget, 20, 1000, start.plus(Duration::from_secs(2)), 50), 20, "two seconds later");
}

#[test]
fn a_long_quiet_time_does_not_save_up_endless_retries() {
    let start = Moment::now();
    let budget = RetryBudget::new(start);
    let later = start.plus(Duration::from_secs(86_400));
    assert_eq!(granted(&budget, 100, 1_000_000, later, 5000), 1000);
}

"""A lock that goes to those who wait, in their order."""

from __future__ import annotations

import threading
from time import sleep

from ebpfprof.system.fair_lock import FairLock


def test_threads_get_it_in_the_order_in_which_they_asked() -> None:
    lock, order = FairLock(), list[int]()

    def take(number: int) -> None:
        with lock:
            order.append(number)

    threads = []
    with lock:
        for number in range(20):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            while len(lock._waiting) <= number:
                sleep(0.0001)
    for thread in threads:
        thread.join()
    assert order == list(range(20))


def test_one_thread_at_a_time_has_it() -> None:
    lock, inside, most = FairLock(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with lock:
                inside += 1
                most = max(most, inside)
                sleep(0)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    with lock:  # free again
        pass

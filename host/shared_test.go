package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/routerd/routerd/host"
)

func TestWaiterMakesTheValueWhenItsMakerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		s := host.NewShared(func(int) error { closed++; return nil })
		ctx, cancel := context.WithCancelCause(context.Background())
		gone := errors.New("caller gone")
		go func() {
			_, err := s.Get(ctx, "k", func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			})
			if !errors.Is(err, gone) {
				t.Errorf("maker: got %v, want its own end", err)
			}
		}()
		synctest.Wait()
		go func() {
			v, err := s.Get(context.Background(), "k", func(context.Context) (int, error) { return 7, nil })
			if v != 7 || err != nil {
				t.Errorf("waiter: got %d, %v, want 7", v, err)
			}
		}()
		synctest.Wait()
		cancel(gone)
		synctest.Wait()
		if err := s.Release("k"); err != nil || closed != 1 || s.Len() != 0 {
			t.Errorf("after release: %v, closed %d, %d left", err, closed, s.Len())
		}
	})
}

func TestWaiterThatGivesUpLeavesTheValueToItsMaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		s := host.NewShared(func(int) error { closed++; return nil })
		finish := make(chan struct{})
		go func() {
			if v, err := s.Get(context.Background(), "k", func(context.Context) (int, error) { <-finish; return 7, nil }); v != 7 || err != nil {
				t.Errorf("maker: got %d, %v", v, err)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := s.Get(ctx, "k", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("waiter: got %v, want canceled", err)
		}
		close(finish)
		synctest.Wait()
		if closed != 0 || s.Len() != 1 {
			t.Fatalf("closed %d, %d left while the maker holds it", closed, s.Len())
		}
		if err := s.Release("k"); err != nil || closed != 1 {
			t.Errorf("after release: %v, closed %d", err, closed)
		}
	})
}

func TestPanicOfAMakerIsAnErrorForItAndItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := host.NewShared(func(int) error { return errors.New("nothing was made that could be closed") })
		let := make(chan struct{})
		for range 3 { // the first makes, the others wait
			go func() {
				_, err := s.Get(context.Background(), "k", func(context.Context) (int, error) {
					<-let
					panic("out of cheese\n")
				})
				if err == nil || !strings.Contains(err.Error(), `out of cheese\n`) {
					t.Errorf("got %v, want the panic, escaped", err)
				}
			}()
			synctest.Wait()
		}
		close(let)
		synctest.Wait()
		if n := s.Len(); n != 0 {
			t.Errorf("%d values are left", n)
		}
	})
}

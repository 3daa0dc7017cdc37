package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestWaiterMakesTheValueWhenItsMakerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		s := newShared[string](func(int) error { closed++; return nil })
		ctx, cancel := context.WithCancelCause(context.Background())
		gone := errors.New("caller gone")
		go func() {
			_, err := s.get(ctx, "k", func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			})
			if !errors.Is(err, gone) {
				t.Errorf("maker: got %v, want its own end", err)
			}
		}()
		synctest.Wait()
		go func() {
			v, err := s.get(context.Background(), "k", func(context.Context) (int, error) { return 7, nil })
			if v != 7 || err != nil {
				t.Errorf("waiter: got %d, %v, want 7", v, err)
			}
		}()
		synctest.Wait()
		cancel(gone)
		synctest.Wait()
		if err := s.release("k"); err != nil || closed != 1 || s.len() != 0 {
			t.Errorf("after release: %v, closed %d, %d left", err, closed, s.len())
		}
	})
}

func TestWaiterThatGivesUpLeavesTheValueToItsMaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		s := newShared[string](func(int) error { closed++; return nil })
		finish := make(chan struct{})
		go func() {
			if v, err := s.get(context.Background(), "k", func(context.Context) (int, error) { <-finish; return 7, nil }); v != 7 || err != nil {
				t.Errorf("maker: got %d, %v", v, err)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := s.get(ctx, "k", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("waiter: got %v, want canceled", err)
		}
		close(finish)
		synctest.Wait()
		if closed != 0 || s.len() != 1 {
			t.Fatalf("closed %d, %d left while the maker holds it", closed, s.len())
		}
		if err := s.release("k"); err != nil || closed != 1 {
			t.Errorf("after release: %v, closed %d", err, closed)
		}
	})
}

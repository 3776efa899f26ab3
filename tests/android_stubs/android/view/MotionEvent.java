package android.view;

public final class MotionEvent {
    public static final int ACTION_DOWN = 0;

    public int getAction() { return 0; }
    public float getX() { return 0; }
    public float getY() { return 0; }
}

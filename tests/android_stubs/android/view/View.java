package android.view;

import android.content.Context;
import org.jetbrains.annotations.Nullable;

public class View {
    public interface OnClickListener {
        void onClick(View view);
    }

    public interface OnTouchListener {
        boolean onTouch(View view, MotionEvent event);
    }

    public View(Context context) {}
    public void setOnClickListener(@Nullable OnClickListener listener) {}
    public void setOnTouchListener(@Nullable OnTouchListener listener) {}
    public boolean getFitsSystemWindows() { return false; }
    public void setFitsSystemWindows(boolean fits) {}
}
